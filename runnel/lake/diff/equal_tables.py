"""Tell whether two tables that were created apart from each other have the same columns and rows. Reads both whole."""

from typing import TYPE_CHECKING

from runnel.lake.iceberg.manifests import entries
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.iceberg.table_properties import is_file_table
from runnel.lake.scan.duckdb_connection import connect
from runnel.lake.scan.scan_sql import Unscannable, rows_sql

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.history.commits import Version
    from runnel.lake.store import Store


def has_equal_rows(store: "Store", one: "Version", other: "Version") -> bool:
    """Tell whether two versions, of tables that were created apart, hold the same; False where it can't be told.

    Two versions of one table are never asked about: their files tell how they differ.
    """
    import duckdb

    left, right = load(store, one.location), load(store, other.location)
    if left.table_uuid == right.table_uuid or _columns(left) != _columns(right):
        return False
    if _plain_rows(store, left) not in (_plain_rows(store, right), None):
        return False
    try:
        first, second = rows_sql(store, left), rows_sql(store, right)
        apart = f"(({first}) EXCEPT ALL ({second})) UNION ALL (({second}) EXCEPT ALL ({first}))"
        with connect() as connection:
            return connection.execute(f"SELECT 1 FROM ({apart}) LIMIT 1").fetchone() is None
    except (Unscannable, duckdb.Error):
        return False


def _columns(metadata: "TableMetadata") -> tuple[object, ...]:
    return (is_file_table(metadata), *((field.name, str(field.field_type)) for field in metadata.schema().fields))


def _plain_rows(store: "Store", metadata: "TableMetadata") -> int | None:
    """Return how many rows a version has, or None where deletes apply to them."""
    live = list(entries(store, metadata))
    return sum(entry.file.record_count for entry in live) if all(entry.is_data for entry in live) else None
