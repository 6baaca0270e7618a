"""Compare fetched rows with a feed's target table: how many rows it would have, and which rows it lacks."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.feed.key_table import create_key_table
from runnel.connect.feed.upsert import PLACE_COLUMNS
from runnel.connect.files.fetched_file import FetchedFile
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_exact_path, quote_identifier, quote_literal, to_duckdb_type
from runnel.lake.scan.scan_sql import deleted_sql, rows_sql

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.warehouse_files import FileAccess

_MAX_CACHED_PLACES = 1_000_000  # places


class TargetComparison:
    """Compares fetched rows with the version `base`; None if the table does not exist yet.

    It remembers the places of the rows with the keys of the last call to `count_rows_after`, if reading the same files
    is certain to yield the same keys: as many rows, of the same types.
    """

    def __init__(self, store: "FileAccess", base: str | None) -> None:
        self._store = store
        self._base = base
        self._compared_rows = 0
        self._places: pa.Table | None = None

    @cached_property
    def _metadata(self) -> "TableMetadata | None":
        return table_metadata.load_metadata(self._store, self._base) if self._base is not None else None

    @cached_property
    def _manifest_entries(self) -> list[FileEntry]:
        return list(read_entries(self._store, self._metadata)) if self._metadata is not None else []

    def count_rows_after(self, parts: Sequence[FetchedFile], key: Sequence[str]) -> int:
        """Return how many rows the table has after an upsert of the rows of Parquet files."""
        with translate_duckdb_errors(), connect_duckdb() as con:
            self._compared_rows = (
                int(con.execute(f"SELECT count(*) FROM {_read_parquet_sql(parts)}").fetchall()[0][0]) if parts else 0
            )
            if self._metadata is None or not self._manifest_entries:
                return self._compared_rows
            displaced_condition = create_key_table(
                con, "runnel_keys", self._metadata, key, [str(part.path) for part in parts]
            )
            rows = rows_sql(self._store, self._metadata, self._manifest_entries, with_positions=True)
            con.execute(
                f"CREATE TEMP TABLE places AS SELECT {PLACE_COLUMNS} FROM ({rows}) AS old WHERE {displaced_condition}"
            )
            count = int(con.execute("SELECT count(*) FROM places").fetchall()[0][0])
            if count <= _MAX_CACHED_PLACES and parts and _has_table_types(con, self._metadata, parts, key):
                self._places = con.sql("SELECT * FROM places").to_arrow_table()
            return self._compared_rows + _count_live_rows(con, self._manifest_entries) - count

    def write_differing_rows(self, parts: Sequence[FetchedFile], path: Path) -> bool:
        """Write the rows of Parquet files that the table lacks; False if there is no version, or it is empty."""
        if self._metadata is None or not self._manifest_entries or not parts:
            return False
        with translate_duckdb_errors(), connect_duckdb() as con:
            described = con.execute(f"DESCRIBE SELECT * FROM {_read_parquet_sql(parts)}").fetchall()
            names_by_lower = {str(name).lower(): str(name) for name, *_ in described}
            is_same_row = " AND ".join(
                f"old.{quote_identifier(field.name)} IS NOT DISTINCT FROM "
                f"TRY_CAST(new.{quote_identifier(names_by_lower[field.name.lower()])} "
                f"AS {to_duckdb_type(field.field_type)})"
                for field in self._metadata.schema().fields
                if field.name.lower() in names_by_lower
            )
            rows = rows_sql(self._store, self._metadata, self._manifest_entries)
            differing_sql = (
                f"SELECT * FROM {_read_parquet_sql(parts)} AS new WHERE NOT EXISTS "
                f"(SELECT 1 FROM ({rows}) AS old WHERE {is_same_row})"
            )
            con.execute(f"COPY ({differing_sql}) TO {quote_literal(str(path))} (FORMAT parquet, COMPRESSION lz4_raw)")
            return True

    def find_displaced_places(self, rows: int) -> "pa.Table | None":
        """Return the places of the rows that the last compared files displace; None if they had not `rows` rows."""
        return self._places if rows == self._compared_rows else None


def _count_live_rows(con: "duckdb.DuckDBPyConnection", manifest_entries: Sequence[FileEntry]) -> int:
    data = [entry for entry in manifest_entries if entry.is_data]
    deletes = [entry for entry in manifest_entries if not entry.is_data]
    count = sum(entry.file.record_count for entry in data)
    if not (data and deletes):
        return count
    deleted_counts = con.execute(
        f"SELECT count(*) FROM (SELECT DISTINCT * FROM ({deleted_sql(data, deletes)}))"
    ).fetchall()
    return count - int(deleted_counts[0][0])


def _has_table_types(
    con: "duckdb.DuckDBPyConnection", metadata: "TableMetadata", parts: Sequence[FetchedFile], key: Sequence[str]
) -> bool:
    """Tell whether the key columns of the files have the table's types, so that reading them converts nothing."""
    described = con.execute(f"DESCRIBE SELECT * FROM {_read_parquet_sql(parts)}").fetchall()
    types = {str(name).lower(): str(kind) for name, kind, *_ in described}
    fields = [metadata.schema().find_field(column, case_sensitive=False) for column in key]
    return all(types.get(column.name.lower()) == to_duckdb_type(column.field_type) for column in fields)


def _read_parquet_sql(parts: Sequence[FetchedFile]) -> str:
    paths = ", ".join(quote_exact_path(str(part.path)) for part in parts)
    return f"read_parquet([{paths}], hive_partitioning = false)"
