"""The rows of a version that have certain keys: first the files that hold any are found, by their key columns alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.lake.iceberg.file_io import plain
from runnel.lake.scan.duckdb_types import quoted
from runnel.lake.scan.scan_sql import FILE_COLUMN, rows_sql, spelled

if TYPE_CHECKING:
    import duckdb
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.iceberg.manifests import Entry
    from runnel.lake.store import Store


@dataclass(frozen=True)
class Keys:
    """Keys that stand in a table of a connection, with columns called as in the versions that are read."""

    store: "Store"
    con: "duckdb.DuckDBPyConnection"
    table: str
    key: tuple[str, ...]

    def rows(self, metadata: "TableMetadata", found: "Sequence[Entry]") -> str:
        """Return a SELECT of the rows with one of the keys, of a version with these files."""
        rows = rows_sql(self.store, metadata, self._holding(metadata, found))
        return f"SELECT rows.* FROM ({rows}) AS rows {self._join}"

    def _holding(self, metadata: "TableMetadata", found: "Sequence[Entry]") -> "list[Entry]":
        data = [entry for entry in found if entry.is_data]
        if not data:
            return []
        rows = rows_sql(self.store, metadata, found, places=True)
        sql = f"SELECT DISTINCT rows.{quoted(FILE_COLUMN)} FROM ({rows}) AS rows {self._join}"
        paths = {spelled(path) for (path,) in self.con.execute(sql).fetchall()}
        deletes = [entry for entry in found if not entry.is_data]
        return [*(entry for entry in data if spelled(plain(entry.path)) in paths), *deletes]

    @property
    def _join(self) -> str:
        return f"SEMI JOIN {self.table} USING ({', '.join(quoted(name) for name in self.key)})"
