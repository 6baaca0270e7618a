"""Compare two versions of a table row by row: by key, or as multisets where no key is known.

Rows are compared on the columns that both versions have. Null keys are equal to each other, and so are NaNs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.errors import Mistake, nearest
from runnel.lake.diff.row_delta import COUNT, Compared, net
from runnel.lake.history.commits import version_at
from runnel.lake.history.refs import readable
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.scan.duckdb_types import quoted
from runnel.names import TableName

if TYPE_CHECKING:
    import duckdb

    from runnel.lake.store import Store

Row = tuple[Any, ...]


@dataclass(frozen=True)
class CellChange:
    """A column of a row that changed."""

    column: str
    before: Any
    after: Any


@dataclass(frozen=True)
class ChangedRow:
    """A row that both versions have, by its key, with the columns in which it differs."""

    key: Row
    cells: tuple[CellChange, ...]


@dataclass(frozen=True)
class RowDiff:
    """The rows that came, went and changed: at most as many of each as asked for, and how many there are."""

    table: TableName
    key: tuple[str, ...]
    columns: tuple[str, ...]
    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    changed: tuple[ChangedRow, ...]
    rows_added: int
    rows_removed: int
    rows_changed: int

    @property
    def is_whole(self) -> bool:
        """Tell whether every row that differs is here."""
        return (len(self.added), len(self.removed), len(self.changed)) == (
            self.rows_added,
            self.rows_removed,
            self.rows_changed,
        )


def diff_rows(
    store: "Store", a: str, b: str, table: TableName, *, key: Sequence[str] | None = None, limit: int = 1000
) -> RowDiff:
    """Return how the rows of a table at `b` differ from those at `a`.

    `key` names the columns that identify a row; by default the table's property `runnel.key` does.
    """
    from runnel.lake.scan.duckdb_connection import connect, told

    commits = [readable(store.commit(ref)) for ref in (a, b)]
    old, new = store.db.read(lambda connection: [version_at(connection, commit, table) for commit in commits])
    newest = new or old
    if newest is None:
        raise store.unknown(table, commits[1])
    if old and new and old.content == new.content:
        return RowDiff(table, tuple(key or ()), (), (), (), (), 0, 0, 0)
    found = net(store, old.location if old else None, new.location if new else None)
    names = _key(table, key, load(store, newest.location).properties.get(table_properties.KEY), found.columns)
    with told(), connect() as connection:
        connection.execute(f"CREATE TEMP TABLE net AS {found.sql}")
        return _Comparison(connection, table, found.columns, names, limit).rows()


def _key(
    table: TableName, given: Sequence[str] | None, declared: str | None, columns: Iterable[Compared]
) -> tuple[str, ...]:
    names = tuple(given) if given is not None else tuple(filter(None, map(str.strip, (declared or "").split(","))))
    known = [column.name for column in columns]
    for name in names:
        if name not in known:
            close = nearest(name, known)
            what = f"`{table}` has no column `{name}` in both versions" + (f"; close: `{close}`" if close else "")
            raise Mistake("DIFF_KEY_UNKNOWN", what, fix=f"choose among {', '.join(known)}")
    return names


class _Comparison:
    """Reads added, removed and changed rows off the netted rows, which stand in the table `net`."""

    def __init__(
        self,
        connection: "duckdb.DuckDBPyConnection",
        table: TableName,
        columns: tuple[Compared, ...],
        key: tuple[str, ...],
        limit: int,
    ) -> None:
        self.connection = connection
        self.table = table
        self.columns = columns
        self.key = key
        self.limit = limit
        self.shown = ", ".join(quoted(column.name) for column in columns) or "NULL"
        keys = [column.as_key for column in columns if column.name in key]
        self.keys = ", ".join(keys)
        self.same = " AND ".join(
            f"{self._of('came', column)} IS NOT DISTINCT FROM {self._of('gone', column)}"
            for column in columns
            if column.name in key
        )

    def rows(self) -> RowDiff:
        """Return all that differs."""
        if self.key:
            self._check()
        added, rows_added = self._only("came", "gone")
        removed, rows_removed = self._only("gone", "came")
        changed, rows_changed = self._changed() if self.key else ((), 0)
        names = tuple(column.name for column in self.columns)
        return RowDiff(self.table, self.key, names, added, removed, changed, rows_added, rows_removed, rows_changed)

    def _check(self) -> None:
        """Raise where the key names several rows of one version."""
        twice = self._fetch(
            f"SELECT {', '.join(map(quoted, self.key))} FROM net"
            f" QUALIFY sum(abs({quoted(COUNT)})) OVER (PARTITION BY {self.keys}, {quoted(COUNT)} > 0) > 1 LIMIT 1"
        )
        if twice:
            shown = ", ".join(f"{name} = {value!r}" for name, value in zip(self.key, twice[0], strict=True))
            raise Mistake(
                "DIFF_KEY_NOT_UNIQUE",
                f"the key does not tell the rows of `{self.table}` apart: several have {shown}",
                fix="name more columns with --key, or none to compare whole rows: --key ''",
            )

    def _only(self, side: str, other: str) -> tuple[tuple[Row, ...], int]:
        query = f"FROM {_side(side)}" + (f" ANTI JOIN {_side(other)} ON {self.same}" if self.key else "")
        total = self._fetch(f"SELECT CAST(coalesce(sum(abs({quoted(COUNT)})), 0) AS BIGINT) {query}")[0][0]
        # A row that came several times is shown as often, but not more often than anyone will look.
        times = f"unnest(range(least(CAST(abs({quoted(COUNT)}) AS BIGINT), {self.limit})))"
        order = f"{self.keys}, {self.shown}" if self.key else self.shown
        rows = self._fetch(f"SELECT {self.shown} FROM (SELECT *, {times} {query}) ORDER BY {order} LIMIT {self.limit}")
        return tuple(rows), int(total)

    def _changed(self) -> tuple[tuple[ChangedRow, ...], int]:
        query = f"FROM {_side('came')} JOIN {_side('gone')} ON {self.same}"
        total = int(self._fetch(f"SELECT count(*) {query}")[0][0])
        others = [column for column in self.columns if column.name not in self.key]
        keys = [f"came.{quoted(name)}" for name in self.key]
        cells = [
            f"{self._of('came', column)} IS DISTINCT FROM {self._of('gone', column)},"
            f" gone.{quoted(column.name)}, came.{quoted(column.name)}"
            for column in others
        ]
        rows = self._fetch(
            f"SELECT {', '.join([*keys, *cells])} {query} ORDER BY {self.keys_of('came')} LIMIT {self.limit}"
        )
        return tuple(_changed_row(row, len(keys), [column.name for column in others]) for row in rows), total

    def keys_of(self, side: str) -> str:
        """Return the key's columns of one side."""
        return ", ".join(f"{side}.{quoted(name)}" for name in self.key)

    def _of(self, side: str, column: Compared) -> str:
        from runnel.lake.diff.row_delta import comparable

        return comparable(f"{side}.{quoted(column.name)}", column.kind)

    def _fetch(self, sql: str) -> list[Row]:
        # Through Arrow, whose values need no time zone database of their own.
        table = self.connection.sql(sql).to_arrow_table()
        columns = [column.to_pylist() for column in table.columns]
        return list(zip(*columns, strict=True)) if columns else []


def _side(name: str) -> str:
    sign = ">" if name == "came" else "<"
    return f"(SELECT * FROM net WHERE {quoted(COUNT)} {sign} 0) AS {name}"


def _changed_row(row: Row, keys: int, names: Sequence[str]) -> ChangedRow:
    cells = []
    for number, name in enumerate(names):
        differs, before, after = row[keys + 3 * number : keys + 3 * number + 3]
        if differs:
            cells.append(CellChange(name, before, after))
    return ChangedRow(row[:keys], tuple(cells))
