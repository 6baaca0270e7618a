"""Remove the rows from a version whose keys were updated or removed.

If a large file loses few rows, they are marked as deleted, so that the cost follows the size of the change; any other
file is rewritten without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from runnel.connect.feed.key_table import create_key_table
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS, RowWriter
from runnel.lake.iceberg.position_delete_writer import DeletePartition, write_position_deletes
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_identifier, quote_literal
from runnel.lake.scan.scan_sql import (
    FILE_COLUMN,
    POSITION_COLUMN,
    deleted_sql,
    normalize_file_path,
    partition_of,
    rows_sql,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import duckdb
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

LARGE_BYTES = 1024 * 1024  # rewriting a smaller file is cheap
MOST_MARKED = 0.1  # share of a file's rows: with more, skipping them on each read costs more than rewriting the file
MOST_MARKS = 8  # delete files in a partition; then they are merged
PLACE_COLUMNS = f"old.{quote_identifier(FILE_COLUMN)} AS file, old.{quote_identifier(POSITION_COLUMN)} AS pos"
_KEYS, _PRESENT, _DISPLACED = "runnel_keys", "runnel_present", "runnel_gone"


@dataclass(frozen=True)
class DisplacedFiles:
    """The files to add to and to remove from a version, so that it no longer has the displaced rows."""

    added: "tuple[DataFile, ...]" = ()
    removed: tuple[FileEntry, ...] = ()


def displace_rows(
    store: "Store",
    base: str,
    metadata: "TableMetadata",
    added: "Sequence[DataFile]",
    key: Sequence[str],
    *,
    removed_keys: Path | None = None,
    present_keys: Sequence[Path] = (),
) -> DisplacedFiles:
    """Return the file changes that remove rows from a version, by their keys.

    Rows are removed if their keys are in `added` or `removed_keys` or, if there are files `present_keys`, in none of
    them. Rewritten files are written for `metadata`, which has the columns of the new version.
    """
    base_metadata = table_metadata.load_metadata(store, base)
    manifest_entries = list(read_entries(store, base_metadata))
    key_files = [normalize_location(file.file_path) for file in added] + ([str(removed_keys)] if removed_keys else [])
    if not manifest_entries or not (key_files or present_keys):
        return DisplacedFiles()
    with translate_duckdb_errors(), connect_duckdb() as con:
        displaced_condition = create_key_table(con, _KEYS, base_metadata, key, key_files)
        if present_keys:
            displaced_condition = (
                f"({displaced_condition} OR NOT "
                f"{create_key_table(con, _PRESENT, base_metadata, key, [str(path) for path in present_keys])})"
            )
        rows = rows_sql(store, base_metadata, manifest_entries, with_positions=True)
        con.execute(
            f"CREATE TEMP TABLE {_DISPLACED} AS SELECT {PLACE_COLUMNS} FROM ({rows}) AS old WHERE {displaced_condition}"
        )
        return _RowDisplacer(store, con, base_metadata, metadata, manifest_entries).displace()


def displace_places(store: "Store", base: str, metadata: "TableMetadata", places: pa.Table) -> DisplacedFiles:
    """Return the file changes that remove the rows at known places; see `displace_rows`."""
    base_metadata = table_metadata.load_metadata(store, base)
    manifest_entries = list(read_entries(store, base_metadata))
    if not manifest_entries:
        return DisplacedFiles()
    with translate_duckdb_errors(), connect_duckdb() as con:
        con.register(_DISPLACED, places)
        return _RowDisplacer(store, con, base_metadata, metadata, manifest_entries).displace()


class _RowDisplacer:
    """Removes rows at known places from the files of a version."""

    def __init__(
        self,
        store: "Store",
        con: "duckdb.DuckDBPyConnection",
        base_metadata: "TableMetadata",
        metadata: "TableMetadata",
        manifest_entries: Sequence[FileEntry],
    ) -> None:
        self._store = store
        self._con = con
        self._base_metadata = base_metadata
        self._metadata = metadata
        self._data = {
            normalize_file_path(normalize_location(entry.path)): entry for entry in manifest_entries if entry.is_data
        }
        self._deletes = [entry for entry in manifest_entries if not entry.is_data]

    def displace(self) -> DisplacedFiles:
        """Mark or rewrite the rows, and return the changed files."""
        displaced_counts = self._count_by_file(f"SELECT file, count(*) FROM {_DISPLACED} GROUP BY file")
        deleted_counts = self._count_by_file(
            self._build_deleted_select("gone_file, count(DISTINCT gone_pos)") + " GROUP BY gone_file"
        )
        rewritten_entries: list[FileEntry] = []
        marked_entries: list[FileEntry] = []
        for path, count in displaced_counts.items():
            entry = self._data.pop(path)
            is_large = entry.file.file_size_in_bytes >= LARGE_BYTES
            is_few = count + deleted_counts.get(path, 0) <= MOST_MARKED * entry.file.record_count
            (marked_entries if is_large and is_few else rewritten_entries).append(entry)
        delete_files, replaced_deletes = self._mark_deleted(marked_entries, [*marked_entries, *self._data.values()])
        return DisplacedFiles(
            (*self._rewrite_files(rewritten_entries), *delete_files), (*rewritten_entries, *replaced_deletes)
        )

    def _count_by_file(self, sql: str) -> dict[str, int]:
        return {normalize_file_path(path): int(count) for path, count in self._con.execute(sql).fetchall()}

    def _build_deleted_select(self, columns: str, data: Sequence[FileEntry] | None = None) -> str:
        """Return a SELECT of the places that are already deleted in this version."""
        data_entries = list(self._data.values()) if data is None else data
        if not (self._deletes and data_entries):
            return f"SELECT {columns} FROM (SELECT '' AS gone_file, 0 AS gone_pos WHERE false)"
        return f"SELECT {columns} FROM ({deleted_sql(data_entries, self._deletes)})"

    def _rewrite_files(self, rewritten_entries: Sequence[FileEntry]) -> "list[DataFile]":
        """Rewrite files with the rows that remain."""
        if not rewritten_entries:
            return []
        rows = rows_sql(self._store, self._base_metadata, [*rewritten_entries, *self._deletes], with_positions=True)
        columns = [quote_identifier(field.name) for field in self._base_metadata.schema().fields]
        is_same_place = (
            f"old.{quote_identifier(FILE_COLUMN)} = gone.file AND old.{quote_identifier(POSITION_COLUMN)} = gone.pos"
        )
        retained_rows = self._con.sql(
            f"SELECT {', '.join(columns)} FROM ({rows}) AS old ANTI JOIN {_DISPLACED} AS gone ON {is_same_place}"
        )
        writer = RowWriter(self._store, self._metadata)
        for batch in cast("Iterable[pa.RecordBatch]", retained_rows.to_arrow_reader(ROW_GROUP_ROWS)):
            writer.write(_add_missing_columns(pa.Table.from_batches([batch]), writer.arrow_schema))
        return writer.close()

    def _mark_deleted(
        self, marked_entries: Sequence[FileEntry], live_entries: Sequence[FileEntry]
    ) -> "tuple[list[DataFile], list[FileEntry]]":
        """Mark rows as deleted, by partition; return the new delete files and the old ones that they replace."""
        delete_files: list[DataFile] = []
        replaced_deletes: list[FileEntry] = []
        for partition_key, group in _group_by_partition(marked_entries).items():
            old_deletes = [entry for entry in self._deletes if partition_of(entry) == partition_key]
            places = f"SELECT file, pos FROM {_DISPLACED}"
            if len(old_deletes) >= MOST_MARKS:
                group = [entry for entry in live_entries if partition_of(entry) == partition_key]
                places += f" UNION {self._build_deleted_select('gone_file AS file, gone_pos AS pos', group)}"
                replaced_deletes += old_deletes
            partition = DeletePartition(group[0].file.spec_id, group[0].file.partition)
            delete_files.append(
                write_position_deletes(self._store, self._metadata, partition, self._sort_places(places, group))
            )
        return delete_files, replaced_deletes

    def _sort_places(self, places: str, data: Sequence[FileEntry]) -> "Iterator[pa.RecordBatch]":
        """Yield the sorted places in some files, with the file paths as in the version's manifests."""
        named = ", ".join(
            f"({quote_literal(normalize_location(entry.path))}, {quote_literal(entry.path)})" for entry in data
        )
        sql = (
            f"SELECT named.file_path, places.pos FROM ({places}) AS places"
            f" JOIN (VALUES {named}) AS named(file, file_path) USING (file) ORDER BY ALL"
        )
        yield from self._con.sql(sql).to_arrow_reader(ROW_GROUP_ROWS)


def _group_by_partition(manifest_entries: Sequence[FileEntry]) -> dict[tuple[int, Any], list[FileEntry]]:
    groups: dict[tuple[int, Any], list[FileEntry]] = {}
    for entry in manifest_entries:
        groups.setdefault(partition_of(entry), []).append(entry)
    return groups


def _add_missing_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the columns that the table gained since they were written, filled with null."""
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows
