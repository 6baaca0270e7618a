"""Compare two tables that were created independently: have they the same columns and rows? Reads both completely."""

from typing import TYPE_CHECKING

from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.iceberg.table_properties import is_file_table
from runnel.lake.scan.duckdb_connection import connect_duckdb
from runnel.lake.scan.duckdb_types import DuckdbScanError
from runnel.lake.scan.scan_sql import rows_sql

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store
    from runnel.model.table_version import TableVersion


def has_equal_rows(store: "Store", version: "TableVersion", other_version: "TableVersion") -> bool:
    """Return whether versions of two independently created tables have the same rows; False if that can't be told.

    Returns False for two versions of one table: there the files show the difference.
    """
    import duckdb

    left, right = load_metadata(store, version.location), load_metadata(store, other_version.location)
    if left.table_uuid == right.table_uuid or _describe_columns(left) != _describe_columns(right):
        return False
    if _count_rows(store, left) not in (_count_rows(store, right), None):
        return False
    try:
        left_sql, right_sql = rows_sql(store, left), rows_sql(store, right)
        difference_sql = f"(({left_sql}) EXCEPT ALL ({right_sql})) UNION ALL (({right_sql}) EXCEPT ALL ({left_sql}))"
        with connect_duckdb() as connection:
            return connection.execute(f"SELECT 1 FROM ({difference_sql}) LIMIT 1").fetchone() is None
    except (DuckdbScanError, duckdb.Error):
        return False


def _describe_columns(metadata: "TableMetadata") -> tuple[object, ...]:
    return (is_file_table(metadata), *((field.name, str(field.field_type)) for field in metadata.schema().fields))


def _count_rows(store: "Store", metadata: "TableMetadata") -> int | None:
    """Return how many rows a version has, or None if it has delete files."""
    live_entries = list(read_entries(store, metadata))
    return (
        sum(entry.file.record_count for entry in live_entries) if all(entry.is_data for entry in live_entries) else None
    )
