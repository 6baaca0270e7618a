"""Build the SQL by which rows of two versions of a table cancel out, for DuckDB.

Old rows have the newer version's columns, so that a column added since is null in them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel.internal_names import internal_column
from runnel.lake.diff.compared_columns import ComparedColumn, find_common_columns
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type
from runnel.lake.scan.scan_sql import rows_sql

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.iceberg.manifests import FileEntry
    from runnel.lake.warehouse_files import FileAccess

ADDED_VIEW, REMOVED_VIEW = "came", "gone"
_COUNT = quote_identifier(internal_column("count"))


def old_rows_sql(
    files: "FileAccess", before: "TableMetadata", newer: "TableMetadata", entries: "Sequence[FileEntry]"
) -> str:
    """Return a SELECT of rows of the older version with the columns and types of the newer one."""
    old_names = {
        new_field.field_id: quote_identifier(old_field.name)
        for old_field, new_field in find_common_columns(before, newer)
    }
    columns = [
        f"CAST({old_names.get(table_field.field_id, 'NULL')} AS {to_duckdb_type(table_field.field_type)}) "
        f"AS {quote_identifier(table_field.name)}"
        for table_field in newer.schema().fields
    ]
    return f"SELECT {', '.join(columns)} FROM ({rows_sql(files, before, entries)})"


def create_net_views(
    connection: "duckdb.DuckDBPyConnection", columns: Sequence[ComparedColumn], old_rows: str, new_rows: str | None
) -> None:
    """Create the views of added and of removed rows from SELECTs of old and new rows; equal rows cancel out."""
    names = ", ".join(quote_identifier(column.name) for column in columns)
    signed_rows = f"SELECT -1 AS {_COUNT}, {names} FROM ({old_rows})"
    if new_rows is not None:
        signed_rows += f" UNION ALL SELECT 1 AS {_COUNT}, {names} FROM ({new_rows})"
    keys = ", ".join(column.key_expression for column in columns)
    select_list = ", ".join(
        f"any_value({quote_identifier(compared.name)}) AS {quote_identifier(compared.name)}" for compared in columns
    )
    total = f"sum({_COUNT})"
    connection.execute(
        f"CREATE TEMP TABLE net AS SELECT {total} AS {_COUNT}, {select_list} FROM ({signed_rows})"
        f" GROUP BY {keys} HAVING {total} <> 0"
    )
    for view, sign in ((REMOVED_VIEW, "-"), (ADDED_VIEW, "")):
        signed_count = f"{sign}{_COUNT}"
        repeated_rows = f"SELECT *, unnest(range(CAST({signed_count} AS BIGINT))) FROM net WHERE {signed_count} > 0"
        connection.execute(f"CREATE TEMP VIEW {view} AS SELECT {names} FROM ({repeated_rows})")


def removed_keys_sql(key: Sequence[str]) -> str:
    """Return a SELECT of the keys of removed rows that no added row has."""
    names = ", ".join(map(quote_identifier, key))
    same = " AND ".join(
        f"gone.{quote_identifier(name)} IS NOT DISTINCT FROM came.{quote_identifier(name)}" for name in key
    )
    return f"SELECT DISTINCT {names} FROM {REMOVED_VIEW} AS gone ANTI JOIN {ADDED_VIEW} AS came ON {same}"
