"""Compare two versions of a table row by row: by key, or as multisets if the table has no key.

Rows are compared on the columns that both versions have. Null keys are equal to each other, and so are NaNs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.errors import Mistake, did_you_mean
from runnel.lake.diff.row_delta import COUNT, ComparedColumn, compute_row_delta
from runnel.lake.history.commits import find_version
from runnel.lake.history.refs import check_retained
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.names import TableName

if TYPE_CHECKING:
    import duckdb

    from runnel.lake.store import Store

RowValues = tuple[Any, ...]


@dataclass(frozen=True)
class CellChange:
    """A column of a row that changed."""

    column: str
    before: Any
    after: Any


@dataclass(frozen=True)
class ChangedRow:
    """A row whose key both versions have, with the columns in which it differs."""

    key: RowValues
    cells: tuple[CellChange, ...]


@dataclass(frozen=True)
class RowDiff:
    """The added, removed and changed rows: at most `limit` of each, and the total number of each."""

    table: TableName
    key: tuple[str, ...]
    columns: tuple[str, ...]
    added: tuple[RowValues, ...]
    removed: tuple[RowValues, ...]
    changed: tuple[ChangedRow, ...]
    rows_added: int
    rows_removed: int
    rows_changed: int

    @property
    def is_complete(self) -> bool:
        """Return whether every row that differs is included."""
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
    from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors

    commits = [check_retained(store.commit(ref)) for ref in (a, b)]
    old, new = store.db.read(lambda connection: [find_version(connection, commit, table) for commit in commits])
    existing = new or old
    if existing is None:
        raise store.unknown_table_error(table, commits[1])
    if old and new and old.content == new.content:
        return RowDiff(table, tuple(key or ()), (), (), (), (), 0, 0, 0)
    net_changes = compute_row_delta(store, old.location if old else None, new.location if new else None)
    key_names = _resolve_key(
        table, key, load_metadata(store, existing.location).properties.get(table_properties.KEY), net_changes.columns
    )
    with translate_duckdb_errors(), connect_duckdb() as connection:
        connection.execute(f"CREATE TEMP TABLE net AS {net_changes.sql}")
        return _RowComparison(connection, table, net_changes.columns, key_names, limit).read_diff()


def _resolve_key(
    table: TableName, requested_key: Sequence[str] | None, declared: str | None, columns: Iterable[ComparedColumn]
) -> tuple[str, ...]:
    key_names = (
        tuple(requested_key)
        if requested_key is not None
        else tuple(filter(None, map(str.strip, (declared or "").split(","))))
    )
    column_names = [column.name for column in columns]
    for name in key_names:
        if name not in column_names:
            what = f"`{table}` has no column `{name}` in both versions" + did_you_mean(name, column_names)
            raise Mistake("DIFF_KEY_UNKNOWN", what, fix=f"choose among {', '.join(column_names)}")
    return key_names


class _RowComparison:
    """Reads added, removed and changed rows from the net row changes, which are in the table `net`."""

    def __init__(
        self,
        connection: "duckdb.DuckDBPyConnection",
        table: TableName,
        columns: tuple[ComparedColumn, ...],
        key: tuple[str, ...],
        limit: int,
    ) -> None:
        self.connection = connection
        self.table = table
        self.columns = columns
        self.key = key
        self.limit = limit
        self.select_list = ", ".join(quote_identifier(column.name) for column in columns) or "NULL"
        keys = [column.key_expression for column in columns if column.name in key]
        self.key_list = ", ".join(keys)
        self.key_condition = " AND ".join(
            f"{self._comparable_column('came', column)} IS NOT DISTINCT FROM {self._comparable_column('gone', column)}"
            for column in columns
            if column.name in key
        )

    def read_diff(self) -> RowDiff:
        """Return all rows that differ."""
        if self.key:
            self._check_key_is_unique()
        added, rows_added = self._read_rows_only_in("came", "gone")
        removed, rows_removed = self._read_rows_only_in("gone", "came")
        changed, rows_changed = self._read_changed() if self.key else ((), 0)
        names = tuple(column.name for column in self.columns)
        return RowDiff(self.table, self.key, names, added, removed, changed, rows_added, rows_removed, rows_changed)

    def _check_key_is_unique(self) -> None:
        """Raise if several rows of one version have the same key."""
        duplicates = self._fetch_rows(
            f"SELECT {', '.join(map(quote_identifier, self.key))} FROM net"
            f" QUALIFY sum(abs({quote_identifier(COUNT)})) OVER (PARTITION BY "
            f"{self.key_list}, {quote_identifier(COUNT)} > 0) > 1 LIMIT 1"
        )
        if duplicates:
            key_text = ", ".join(f"{name} = {value!r}" for name, value in zip(self.key, duplicates[0], strict=True))
            raise Mistake(
                "DIFF_KEY_NOT_UNIQUE",
                f"the key does not identify the rows of `{self.table}`: several rows have {key_text}",
                fix="name more columns with --key, or none to compare whole rows: --key ''",
            )

    def _read_rows_only_in(self, side: str, other: str) -> tuple[tuple[RowValues, ...], int]:
        query = f"FROM {_side_query(side)}" + (
            f" ANTI JOIN {_side_query(other)} ON {self.key_condition}" if self.key else ""
        )
        total = self._fetch_rows(f"SELECT CAST(coalesce(sum(abs({quote_identifier(COUNT)})), 0) AS BIGINT) {query}")[0][
            0
        ]
        # A row that was added several times is returned as often, up to the limit.
        repetitions = f"unnest(range(least(CAST(abs({quote_identifier(COUNT)}) AS BIGINT), {self.limit})))"
        order = f"{self.key_list}, {self.select_list}" if self.key else self.select_list
        rows = self._fetch_rows(
            f"SELECT {self.select_list} FROM (SELECT *, {repetitions} {query}) ORDER BY {order} LIMIT {self.limit}"
        )
        return tuple(rows), int(total)

    def _read_changed(self) -> tuple[tuple[ChangedRow, ...], int]:
        query = f"FROM {_side_query('came')} JOIN {_side_query('gone')} ON {self.key_condition}"
        total = int(self._fetch_rows(f"SELECT count(*) {query}")[0][0])
        other_columns = [column for column in self.columns if column.name not in self.key]
        keys = [f"came.{quote_identifier(name)}" for name in self.key]
        cells = [
            f"{self._comparable_column('came', column)} IS DISTINCT FROM {self._comparable_column('gone', column)},"
            f" gone.{quote_identifier(column.name)}, came.{quote_identifier(column.name)}"
            for column in other_columns
        ]
        rows = self._fetch_rows(
            f"SELECT {', '.join([*keys, *cells])} {query} ORDER BY {self.key_columns_of('came')} LIMIT {self.limit}"
        )
        return tuple(_changed_row(row, len(keys), [column.name for column in other_columns]) for row in rows), total

    def key_columns_of(self, side: str) -> str:
        """Return the SQL list of the key's columns of one side."""
        return ", ".join(f"{side}.{quote_identifier(name)}" for name in self.key)

    def _comparable_column(self, side: str, column: ComparedColumn) -> str:
        from runnel.lake.diff.row_delta import make_comparable

        return make_comparable(f"{side}.{quote_identifier(column.name)}", column.kind)

    def _fetch_rows(self, sql: str) -> list[RowValues]:
        # Through Arrow, whose values need no separate time zone database.
        table = self.connection.sql(sql).to_arrow_table()
        columns = [column.to_pylist() for column in table.columns]
        return list(zip(*columns, strict=True)) if columns else []


def _side_query(name: str) -> str:
    sign = ">" if name == "came" else "<"
    return f"(SELECT * FROM net WHERE {quote_identifier(COUNT)} {sign} 0) AS {name}"


def _changed_row(row: RowValues, key_count: int, names: Sequence[str]) -> ChangedRow:
    cells = []
    for number, name in enumerate(names):
        differs, before, after = row[key_count + 3 * number : key_count + 3 * number + 3]
        if differs:
            cells.append(CellChange(name, before, after))
    return ChangedRow(row[:key_count], tuple(cells))
