"""Derive a table from its whole change log by buckets: log rows with equal keys meet in one of them.

Each bucket is small enough for memory, whatever the size of the log. The log is read once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.connect.changes.change_errors import ChangeErrors
from runnel.connect.changes.change_sql import ChangeRule, list_column_names, quote_columns
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS, RowWriter
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.lake.scan.row_pieces import encode_piece, load_pieces, normalize_key, split_rows
from runnel.lake.scan.scan_sql import rows_sql
from runnel.lake.scan.scan_units import ScanUnit
from runnel.lake.warehouse_files import WarehouseFiles

if TYPE_CHECKING:
    import duckdb

_LOG, _LEFT_OUT = "runnel_log", "runnel_left_out"
_LEFT_OUT_SIDE = 1


@dataclass(frozen=True)
class AppliedBucket:
    """The data files of a bucket, and how many rows of the log could not be applied."""

    files: tuple[DataFile, ...]
    left_out: int


@dataclass(frozen=True)
class LogSplitter:
    """Splits files of a log by the keys of their rows; `metadata` is that of the log."""

    files: WarehouseFiles
    metadata: TableMetadata
    rule: ChangeRule
    errors: ChangeErrors
    bucket_count: int

    def __call__(self, unit: ScanUnit) -> Iterator[tuple[int, bytes]]:
        """Yield the rows that can be applied, and how many others there are."""
        with self.errors.describe(), connect_duckdb() as con:
            rows = rows_sql(self.files, self.metadata, unit.entries)
            left_out = f"SELECT count(*) AS rows FROM ({rows}) WHERE NOT ({self.rule.is_applicable_sql})"
            [(left_out_count,)] = con.execute(left_out).fetchall()
            yield 0, encode_piece(pa.table({"rows": [left_out_count]}), _LEFT_OUT_SIDE)
            applicable_rows = f"SELECT * FROM ({rows}) WHERE {self.rule.is_applicable_sql}"
            yield from split_rows(con, applicable_rows, list_key_expressions(self.rule), self.bucket_count)


@dataclass(frozen=True)
class BucketApplier:
    """Writes the table's rows of a bucket; `target` is the metadata of the table."""

    files: WarehouseFiles
    metadata: TableMetadata
    rule: ChangeRule
    errors: ChangeErrors
    target: TableMetadata

    def __call__(self, _bucket: int, pieces: Iterator[bytes]) -> AppliedBucket:
        """Write the rows of a bucket to data files of its own."""
        writer = RowWriter(self.files, self.target)
        left_out_count = self.write_bucket(writer, pieces)
        return AppliedBucket(tuple(writer.close()), left_out_count)

    def write_bucket(
        self, writer: RowWriter, pieces: Iterator[bytes], report_rows: Callable[[int], None] | None = None
    ) -> int:
        """Write the rows of a bucket, and return how many rows of the log were left out."""
        with self.errors.describe(), connect_duckdb() as con:
            con.execute(f"CREATE TEMP TABLE {_LOG} AS {rows_sql(self.files, self.metadata, ())}")
            con.execute(f"CREATE TEMP TABLE {_LEFT_OUT} (rows BIGINT)")
            load_pieces(con, [_LOG, _LEFT_OUT], pieces)
            write_selected_rows(con, self.rule.build_table_select(f"SELECT * FROM {_LOG}"), writer, report_rows)
            [(left_out_count,)] = con.execute(f"SELECT coalesce(sum(rows), 0) FROM {_LEFT_OUT}").fetchall()
            return int(left_out_count)


def list_key_expressions(rule: ChangeRule) -> list[str]:
    """Return the SQL expressions by which rows of the log, or of the table, meet."""
    types = {field.name: field.field_type for field in rule.columns}
    return [normalize_key(quote_identifier(name), types[name]) for name in rule.key]


def write_selected_rows(
    con: "duckdb.DuckDBPyConnection", rows: str, writer: RowWriter, report_rows: Callable[[int], None] | None = None
) -> None:
    """Write the rows of a SELECT that has the columns of the table; `report_rows` gets the number of all rows."""
    columns = quote_columns(list_column_names(writer.schema.fields))
    for batch in con.sql(f"SELECT {columns} FROM ({rows})").to_arrow_reader(ROW_GROUP_ROWS):
        writer.write(batch)
        if report_rows is not None:
            report_rows(writer.rows)
