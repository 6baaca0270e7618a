"""Let the rows of a change that belong together meet in one bucket: those with equal keys, or equal rows.

The rows of all units are shuffled once. In a bucket rows of both versions cancel out by the SQL that one process uses.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.connect.sinks.folder_layout import select_touched_sql
from runnel.connect.sinks.net_rows import ADDED_VIEW, REMOVED_VIEW, create_net_views
from runnel.connect.sinks.units.change_rows import OLD_SIDE, ChangeRows
from runnel.lake.diff.compared_columns import ComparedColumn
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type
from runnel.lake.scan.row_pieces import count_buckets, decode_piece, load_pieces, normalize_key, split_rows
from runnel.lake.scan.scan_units import ScanUnit, build_scan_units, count_bytes

if TYPE_CHECKING:
    import duckdb

    from runnel.connect.sinks.table_change import ChangedFiles
    from runnel.lake.work_runner import Merge, ReportUnits, Result, WorkRunner

_NEW_ROWS, _OLD_ROWS = "new_rows", "old_rows"


@dataclass(frozen=True)
class TouchedPartitions:
    """Partitions of a folder sink whose rows are read, as an Arrow piece; can be pickled."""

    partition: tuple[str, ...]
    values: bytes = field(repr=False)

    def select(self, con: "duckdb.DuckDBPyConnection", rows: str) -> str:
        """Return a SELECT of those rows that belong to the partitions."""
        con.register("touched", decode_piece(self.values)[1])
        return select_touched_sql(f"({rows})", self.partition, "touched")


@dataclass(frozen=True)
class RowSplitter:
    """Splits the rows of units into buckets by the values of SQL expressions; can be pickled."""

    rows: ChangeRows
    keys: tuple[str, ...]
    bucket_count: int
    touched: TouchedPartitions | None = None

    def __call__(self, unit: ScanUnit) -> Iterator[tuple[int, bytes]]:
        """Yield the pieces of a unit with their buckets."""
        with translate_duckdb_errors(), connect_duckdb() as connection:
            sql = self.rows.build_sql(unit)
            if self.touched is not None:
                sql = self.touched.select(connection, sql)
            yield from split_rows(connection, sql, self.keys, self.bucket_count, side=unit.side)


@contextmanager
def open_bucket(
    columns: Sequence[ComparedColumn], pieces: Iterator[bytes], *, has_only_added_rows: bool
) -> "Iterator[duckdb.DuckDBPyConnection]":
    """Load the pieces of a bucket, and yield a connection with the views of added and of removed rows."""
    definitions = ", ".join(f"{quote_identifier(column.name)} {to_duckdb_type(column.kind)}" for column in columns)
    with translate_duckdb_errors(), connect_duckdb() as connection:
        for table in (_NEW_ROWS, _OLD_ROWS):
            connection.execute(f"CREATE TEMP TABLE {table} ({definitions})")
        load_pieces(connection, (_NEW_ROWS, _OLD_ROWS), pieces)
        if has_only_added_rows:
            for view, table in ((ADDED_VIEW, _NEW_ROWS), (REMOVED_VIEW, _OLD_ROWS)):
                connection.execute(f"CREATE TEMP VIEW {view} AS FROM {table}")
        else:
            create_net_views(connection, columns, f"FROM {_OLD_ROWS}", f"FROM {_NEW_ROWS}")
        yield connection


def run_by_key(
    runner: "WorkRunner",
    rows: ChangeRows,
    files: "ChangedFiles",
    key: Sequence[str],
    *,
    merge: "Merge[Result]",
    report_units: "ReportUnits | None",
    touched: TouchedPartitions | None = None,
) -> "list[Result]":
    """Return what `merge` returns for each bucket of the changed rows; rows with equal values of `key` are in one.

    Without a key rows that are equal are in one. With `touched` only rows of those partitions are read.
    """
    parallel_units, size = runner.parallel_units, count_bytes((*files.old, *files.new))
    units = build_scan_units(files.old, parallel_units, side=OLD_SIDE) + build_scan_units(files.new, parallel_units)
    key_columns = [column for column in rows.columns if column.name in key or not key]
    keys = tuple(normalize_key(column.key_expression, column.kind) for column in key_columns)
    bucket_count = count_buckets(size, parallel_units)
    splitter = RowSplitter(rows, keys, bucket_count, touched)
    return runner.run_shuffled(splitter, units, merge, bucket_count, report_units)
