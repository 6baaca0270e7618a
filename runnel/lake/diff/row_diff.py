"""Compare two versions of a table row by row: by key, or as multisets if the table has no key.

Rows are compared on the columns that both versions have. Null keys are equal to each other, and so are NaNs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from runnel.errors import Mistake, did_you_mean
from runnel.lake.diff.compared_columns import ComparedColumn, make_comparable
from runnel.lake.diff.net_rows import COUNT, NET, RowNetting, run_on_net_rows
from runnel.lake.diff.row_delta import check_size, plan_netting
from runnel.lake.history.commits import find_version
from runnel.lake.history.refs import check_retained
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type
from runnel.lake.scan.scan_units import list_outside_paths
from runnel.lake.work_runner import IN_PROCESS, WorkContext
from runnel.model.work_place import EXECUTORS, WorkPlace
from runnel.names import TableName

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

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
    place: WorkPlace | None = None  # where the rows were compared; None if nothing was

    @property
    def is_complete(self) -> bool:
        """Return whether every row that differs is included."""
        return (len(self.added), len(self.removed), len(self.changed)) == (
            self.rows_added,
            self.rows_removed,
            self.rows_changed,
        )


def diff_rows(
    store: "Store",
    a: str,
    b: str,
    table: TableName,
    *,
    key: Sequence[str] | None = None,
    limit: int = 1000,
    work: WorkContext = IN_PROCESS,
) -> RowDiff:
    """Return how the rows of a table at `b` differ from those at `a`.

    `key` names the columns that identify a row; by default the table's property `runnel.key` does. `work` says where
    rows are compared.
    """
    commits = [check_retained(store.commit(ref)) for ref in (a, b)]
    old, new = store.db.read(lambda connection: [find_version(connection, commit, table) for commit in commits])
    existing = new or old
    if existing is None:
        raise store.unknown_table_error(table, commits[1])
    if old and new and old.content == new.content:
        return RowDiff(table, tuple(key or ()), (), (), (), (), 0, 0, 0)
    netting = plan_netting(store, old.location if old else None, new.location if new else None)
    metadata = load_metadata(store, existing.location)
    key_names = _resolve_key(table, key, metadata.properties.get(table_properties.KEY), netting.columns)
    entries = (entry for side in netting.sides for entry in side.entries)
    runner = work.choose_runner(netting.bytes, list_outside_paths(store.warehouse, entries))
    if runner.place.name == EXECUTORS:
        differ = _BucketDiffer(table, netting.columns, key_names, limit)
        report_units = work.make_unit_reporter(f"compare {table}")
        buckets = run_on_net_rows(runner, store.files, replace(netting, key=key_names), differ, report_units)
        return replace(_merge_buckets(differ, buckets), place=runner.place)
    check_size(netting)
    return replace(_diff_in_process(store, table, netting, key_names, limit), place=runner.place)


def _diff_in_process(
    store: "Store", table: TableName, netting: RowNetting, key: tuple[str, ...], limit: int
) -> RowDiff:
    from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors

    with translate_duckdb_errors(), connect_duckdb() as connection:
        connection.execute(f"CREATE TEMP TABLE {NET} AS {netting.build_net_select(store)}")
        return _RowComparison(connection, table, netting.columns, key, limit).read_diff()


@dataclass(frozen=True)
class _BucketDiff:
    """What a bucket adds to a difference: the totals, and the net rows that may be among the first of all buckets."""

    rows_added: int
    rows_removed: int
    rows_changed: int
    first_rows: "pa.Table" = field(repr=False)


@dataclass(frozen=True)
class _BucketDiffer:
    """Compares the rows of a bucket; can be pickled."""

    table: TableName
    columns: tuple[ComparedColumn, ...]
    key: tuple[str, ...]
    limit: int

    def __call__(self, _bucket: int, connection: "duckdb.DuckDBPyConnection") -> _BucketDiff:
        return self.compare(connection).read_bucket()

    def compare(self, connection: "duckdb.DuckDBPyConnection") -> "_RowComparison":
        return _RowComparison(connection, self.table, self.columns, self.key, self.limit)


def _merge_buckets(differ: _BucketDiffer, buckets: "Sequence[_BucketDiff]") -> RowDiff:
    """Return the difference of all buckets: their first rows are compared once more, which sorts and limits them."""
    import pyarrow as pa

    from runnel.lake.scan.duckdb_connection import connect_duckdb

    with connect_duckdb() as connection:
        connection.register("first_rows", pa.concat_tables([bucket.first_rows for bucket in buckets]))
        columns = "".join(
            f", CAST({quote_identifier(column.name)} AS {to_duckdb_type(column.kind)}) "
            f"AS {quote_identifier(column.name)}"
            for column in differ.columns
        )
        connection.execute(f"CREATE TEMP TABLE {NET} AS SELECT {quote_identifier(COUNT)}{columns} FROM first_rows")
        return replace(
            differ.compare(connection).read_diff(),
            rows_added=sum(bucket.rows_added for bucket in buckets),
            rows_removed=sum(bucket.rows_removed for bucket in buckets),
            rows_changed=sum(bucket.rows_changed for bucket in buckets),
        )


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
        self._order = f"{self.key_list}, {self.select_list}" if key else self.select_list
        self.key_condition = " AND ".join(
            f"{self._comparable_column('came', column)} IS NOT DISTINCT FROM {self._comparable_column('gone', column)}"
            for column in columns
            if column.name in key
        )
        self._changed_query = f"FROM {_side_query('came')} JOIN {_side_query('gone')} ON {self.key_condition}"

    def read_diff(self) -> RowDiff:
        """Return all rows that differ."""
        if self.key:
            self._check_key_is_unique()
        added, rows_added = self._read_rows_only_in("came", "gone")
        removed, rows_removed = self._read_rows_only_in("gone", "came")
        changed, rows_changed = self._read_changed() if self.key else ((), 0)
        names = tuple(column.name for column in self.columns)
        return RowDiff(self.table, self.key, names, added, removed, changed, rows_added, rows_removed, rows_changed)

    def read_bucket(self) -> _BucketDiff:
        """Return the totals of a bucket, and enough of its net rows to find the first ones of all buckets."""
        if self.key:
            self._check_key_is_unique()
        queries = {side: self._build_query_of(side, other) for side, other in (("came", "gone"), ("gone", "came"))}
        selects = [
            f"SELECT * FROM (SELECT {side}.* {query}) ORDER BY {self._order} LIMIT {self.limit}"
            for side, query in queries.items()
        ]
        if self.key:
            selects += [
                f"SELECT {side}.* {self._changed_query} ORDER BY {self.key_columns_of('came')} LIMIT {self.limit}"
                for side in ("came", "gone")
            ]
        return _BucketDiff(
            self._count_rows(queries["came"]),
            self._count_rows(queries["gone"]),
            self._count_changed() if self.key else 0,
            self.connection.sql(" UNION ALL ".join(f"({select})" for select in selects)).to_arrow_table(),
        )

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

    def _build_query_of(self, side: str, other: str) -> str:
        """Return the FROM clause over the rows that only one side has."""
        return f"FROM {_side_query(side)}" + (
            f" ANTI JOIN {_side_query(other)} ON {self.key_condition}" if self.key else ""
        )

    def _count_rows(self, query: str) -> int:
        total = f"SELECT CAST(coalesce(sum(abs({quote_identifier(COUNT)})), 0) AS BIGINT) {query}"
        return int(self._fetch_rows(total)[0][0])

    def _count_changed(self) -> int:
        return int(self._fetch_rows(f"SELECT count(*) {self._changed_query}")[0][0])

    def _read_rows_only_in(self, side: str, other: str) -> tuple[tuple[RowValues, ...], int]:
        query = self._build_query_of(side, other)
        # A row that was added several times is returned as often, up to the limit.
        repetitions = f"unnest(range(least(CAST(abs({quote_identifier(COUNT)}) AS BIGINT), {self.limit})))"
        rows = self._fetch_rows(
            f"SELECT {self.select_list} FROM (SELECT *, {repetitions} {query}) "
            f"ORDER BY {self._order} LIMIT {self.limit}"
        )
        return tuple(rows), self._count_rows(query)

    def _read_changed(self) -> tuple[tuple[ChangedRow, ...], int]:
        other_columns = [column for column in self.columns if column.name not in self.key]
        keys = [f"came.{quote_identifier(name)}" for name in self.key]
        cells = [
            f"{self._comparable_column('came', column)} IS DISTINCT FROM {self._comparable_column('gone', column)},"
            f" gone.{quote_identifier(column.name)}, came.{quote_identifier(column.name)}"
            for column in other_columns
        ]
        rows = self._fetch_rows(
            f"SELECT {', '.join([*keys, *cells])} {self._changed_query} "
            f"ORDER BY {self.key_columns_of('came')} LIMIT {self.limit}"
        )
        changed_rows = (_changed_row(row, len(keys), [column.name for column in other_columns]) for row in rows)
        return tuple(changed_rows), self._count_changed()

    def key_columns_of(self, side: str) -> str:
        """Return the SQL list of the key's columns of one side."""
        return ", ".join(f"{side}.{quote_identifier(name)}" for name in self.key)

    def _comparable_column(self, side: str, column: ComparedColumn) -> str:
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
