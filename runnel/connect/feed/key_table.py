"""Keys of rows that come or go, kept as a table of DuckDB, in the types of the version that is looked through."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel.lake.scan.duckdb_types import duckdb_type, exact_path, quoted

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.table.metadata import TableMetadata


def kept_keys(
    con: "duckdb.DuckDBPyConnection", name: str, before: "TableMetadata", key: Sequence[str], files: Sequence[str]
) -> str:
    """Keep the keys of files as a table, in the types of a version; return the SQL of whether it has that of `old`."""
    fields = [before.schema().find_field(one, case_sensitive=False) for one in key]
    columns = ", ".join(
        f"CAST({quoted(one.name)} AS {duckdb_type(one.field_type)}) AS {quoted(one.name)}" for one in fields
    )
    union = " UNION ".join(
        f"SELECT {columns} FROM read_parquet({exact_path(file)}, hive_partitioning = false)" for file in files
    )
    nulls = ", ".join(f"CAST(NULL AS {duckdb_type(one.field_type)}) AS {quoted(one.name)}" for one in fields)
    con.execute(f"CREATE TEMP TABLE {name} AS {union or f'SELECT {nulls} WHERE false'}")
    same = " AND ".join(f"old.{quoted(one.name)} IS NOT DISTINCT FROM {name}.{quoted(one.name)}" for one in fields)
    return f"EXISTS (SELECT 1 FROM {name} WHERE {same})"
