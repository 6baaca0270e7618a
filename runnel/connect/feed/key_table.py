"""Create a DuckDB table of keys, in the column types of the version that is searched for them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel.lake.scan.duckdb_types import quote_exact_path, quote_identifier, to_duckdb_type

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.table.metadata import TableMetadata


def create_key_table(
    con: "duckdb.DuckDBPyConnection", name: str, metadata: "TableMetadata", key: Sequence[str], files: Sequence[str]
) -> str:
    """Create a table of the files' keys in a version's types; return the SQL of whether it has the key of `old`."""
    fields = [metadata.schema().find_field(column, case_sensitive=False) for column in key]
    columns = ", ".join(
        f"CAST({quote_identifier(column.name)} AS {to_duckdb_type(column.field_type)}) "
        f"AS {quote_identifier(column.name)}"
        for column in fields
    )
    union = " UNION ".join(
        f"SELECT {columns} FROM read_parquet({quote_exact_path(file)}, hive_partitioning = false)" for file in files
    )
    nulls = ", ".join(
        f"CAST(NULL AS {to_duckdb_type(column.field_type)}) AS {quote_identifier(column.name)}" for column in fields
    )
    con.execute(f"CREATE TEMP TABLE {name} AS {union or f'SELECT {nulls} WHERE false'}")
    is_same_key = " AND ".join(
        f"old.{quote_identifier(column.name)} IS NOT DISTINCT FROM {name}.{quote_identifier(column.name)}"
        for column in fields
    )
    return f"EXISTS (SELECT 1 FROM {name} WHERE {is_same_key})"
