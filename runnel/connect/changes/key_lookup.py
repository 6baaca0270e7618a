"""Select the rows of a version that have certain keys; the key columns alone decide which files are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.scan.duckdb_types import quote_identifier
from runnel.lake.scan.scan_sql import FILE_COLUMN, normalize_file_path, rows_sql

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.iceberg.manifests import FileEntry
    from runnel.lake.warehouse_files import FileAccess


@dataclass(frozen=True)
class KeyLookup:
    """Looks up rows by the keys in a DuckDB table, whose columns have the names of the versions' columns."""

    store: "FileAccess"
    con: "duckdb.DuckDBPyConnection"
    table: str
    key: tuple[str, ...]

    def build_select(
        self, metadata: "TableMetadata", manifest_entries: "Sequence[FileEntry]", *, with_positions: bool = False
    ) -> str:
        """Return a SELECT of the rows with one of the keys, in a version with these files; see `rows_sql`."""
        matching_files = self._find_matching_files(metadata, manifest_entries)
        rows = rows_sql(self.store, metadata, matching_files, with_positions=with_positions)
        return f"SELECT rows.* FROM ({rows}) AS rows {self._join_sql}"

    def _find_matching_files(
        self, metadata: "TableMetadata", manifest_entries: "Sequence[FileEntry]"
    ) -> "list[FileEntry]":
        data = [entry for entry in manifest_entries if entry.is_data]
        if not data:
            return []
        rows = rows_sql(self.store, metadata, manifest_entries, with_positions=True)
        sql = f"SELECT DISTINCT rows.{quote_identifier(FILE_COLUMN)} FROM ({rows}) AS rows {self._join_sql}"
        paths = {normalize_file_path(path) for (path,) in self.con.execute(sql).fetchall()}
        deletes = [entry for entry in manifest_entries if not entry.is_data]
        return [*(entry for entry in data if normalize_file_path(normalize_location(entry.path)) in paths), *deletes]

    @property
    def _join_sql(self) -> str:
        return f"SEMI JOIN {self.table} USING ({', '.join(quote_identifier(name) for name in self.key)})"
