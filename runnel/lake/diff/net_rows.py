"""Net the rows of two versions by buckets: equal rows of both cancel out where they meet.

Rows of the older version count -1, those of the newer one +1. Only the files that differ are read, once. The caller's
work gets one bucket at a time: a DuckDB connection with the table `NET`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pyiceberg.table.metadata import TableMetadata

from runnel.internal_names import internal_column
from runnel.lake.diff.compared_columns import ComparedColumn
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.table_metadata import drop_history
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type
from runnel.lake.scan.row_pieces import count_buckets, load_pieces, normalize_key, split_rows
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.scan.scan_units import ScanUnit, build_scan_units, count_bytes
from runnel.lake.warehouse_files import WarehouseFiles

if TYPE_CHECKING:
    import duckdb

    from runnel.lake.warehouse_files import FileAccess
    from runnel.lake.work_runner import ReportUnits, WorkRunner

Result = TypeVar("Result")
COUNT = internal_column("count")
NET = "net"
"""The table of a bucket's net rows: the compared columns, and in `COUNT` how many more copies the newer version has."""
_SIGNED = "runnel_signed"


@dataclass(frozen=True)
class SignedFiles:
    """Files of one version. `columns` are SQL expressions over its rows, one for each compared column."""

    metadata: TableMetadata
    entries: tuple[FileEntry, ...]
    sign: int
    columns: tuple[str, ...]

    def build_select(self, store: "FileAccess", entries: "Sequence[FileEntry] | None" = None) -> str:
        """Return a SELECT of the compared columns of all files, or of some, with the sign as `COUNT`."""
        rows = rows_sql(store, self.metadata, self.entries if entries is None else entries)
        return f"SELECT {', '.join([f'{self.sign} AS {quote_identifier(COUNT)}', *self.columns])} FROM ({rows})"


@dataclass(frozen=True)
class RowNetting:
    """The rows to net. `net_sql` groups the rows of a SELECT; rows meet by `key`, by default by all columns."""

    sides: tuple[SignedFiles, ...]
    columns: tuple[ComparedColumn, ...]
    net_sql: Callable[[str, Sequence[ComparedColumn]], str]
    key: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Return the size of the files that are read."""
        return sum(count_bytes(side.entries) for side in self.sides)

    def build_net_select(self, store: "FileAccess") -> str:
        """Return a SELECT of all net rows, for this process."""
        return self.net_sql(" UNION ALL ".join(side.build_select(store) for side in self.sides), self.columns)

    def list_key_expressions(self) -> list[str]:
        """Return the SQL expressions by which rows meet."""
        return [
            normalize_key(column.key_expression, column.kind)
            for column in self.columns
            if not self.key or column.name in self.key
        ]


def run_on_net_rows(
    runner: "WorkRunner",
    store_files: WarehouseFiles,
    netting: RowNetting,
    work: "Callable[[int, duckdb.DuckDBPyConnection], Result]",
    report_units: "ReportUnits | None" = None,
) -> list[Result]:
    """Return what `work` returns for each bucket of net rows, also for an empty one.

    `work` must be picklable and gets the bucket and a connection that has the table `NET`. All rows whose columns in
    `netting.key` are equal are in one bucket.
    """
    units = [
        unit
        for number, side in enumerate(netting.sides)
        for unit in build_scan_units(side.entries, runner.parallel_units, side=number)
    ]
    bucket_count = count_buckets(netting.bytes, runner.parallel_units)
    sides = tuple(
        SignedFiles(drop_history(side.metadata), (), side.sign, side.columns) for side in netting.sides
    )  # the units name the files
    sent_netting = RowNetting(sides, netting.columns, netting.net_sql, netting.key)
    splitter = _NetSplitter(store_files, sent_netting, bucket_count)
    return runner.run_shuffled(splitter, units, _NetMerger(sent_netting, work), bucket_count, report_units)


@dataclass(frozen=True)
class _NetSplitter:
    """Splits the rows of files of either version."""

    files: WarehouseFiles
    netting: RowNetting
    bucket_count: int

    def __call__(self, unit: ScanUnit) -> Iterator[tuple[int, bytes]]:
        with translate_duckdb_errors(), connect_duckdb() as con:
            rows = self.netting.sides[unit.side].build_select(self.files, unit.entries)
            yield from split_rows(con, rows, self.netting.list_key_expressions(), self.bucket_count)


@dataclass(frozen=True)
class _NetMerger(Generic[Result]):
    """Nets the rows of a bucket and hands them to the caller's work."""

    netting: RowNetting
    work: "Callable[[int, duckdb.DuckDBPyConnection], Result]"

    def __call__(self, bucket: int, pieces: Iterator[bytes]) -> Result:
        with translate_duckdb_errors(), connect_duckdb() as con:
            columns = ", ".join(
                f"{quote_identifier(column.name)} {to_duckdb_type(column.kind)}" for column in self.netting.columns
            )
            count_column = f"{quote_identifier(COUNT)} INTEGER{',' if columns else ''}"
            con.execute(f"CREATE TEMP TABLE {_SIGNED} ({count_column} {columns})")
            load_pieces(con, [_SIGNED], pieces)
            net_select = self.netting.net_sql(f"SELECT * FROM {_SIGNED}", self.netting.columns)
            con.execute(f"CREATE TEMP TABLE {NET} AS {net_select}")
            con.execute(f"DROP TABLE {_SIGNED}")
            return self.work(bucket, con)
