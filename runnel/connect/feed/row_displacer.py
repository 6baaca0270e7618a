"""Remove rows at known places from the files of a version: mark them as deleted, or rewrite their files.

If a large file loses few rows, they are marked as deleted, so that the cost follows the size of the change; any other
file is rewritten without them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from runnel.connect.feed.key_matches import KeyedVersion
from runnel.connect.feed.row_places import RowPlaces
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.parquet_writer import ROW_GROUP_ROWS, RowWriter
from runnel.lake.iceberg.position_delete_writer import DeletePartition, write_position_deletes
from runnel.lake.iceberg.table_metadata import drop_history
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_exact_path, quote_identifier, quote_literal
from runnel.lake.scan.row_pieces import load_pieces, split_by_bucket
from runnel.lake.scan.scan_sql import (
    FILE_COLUMN,
    POSITION_COLUMN,
    deleted_sql,
    normalize_file_path,
    partition_of,
    rows_sql,
)
from runnel.lake.scan.scan_units import build_scan_units
from runnel.lake.warehouse_files import WarehouseFiles
from runnel.lake.work_runner import WorkRunner

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.warehouse_files import FileAccess

LARGE_BYTES = 1024 * 1024  # rewriting a smaller file is cheap
MOST_MARKED = 0.1  # share of a file's rows: with more, skipping them on each read costs more than rewriting the file
MOST_MARKS = 8  # delete files in a partition; then they are merged
DISPLACED_TABLE = "runnel_gone"
"""The DuckDB table of the places, with the columns `file` and `pos`."""


@dataclass(frozen=True)
class DisplacedFiles:
    """The files to add to and to remove from a version, so that it no longer has the displaced rows."""

    added: "tuple[DataFile, ...]" = ()
    removed: tuple[FileEntry, ...] = ()


def displace_stored_places(
    runner: WorkRunner,
    version: KeyedVersion,
    metadata: "TableMetadata",
    manifest_entries: Sequence[FileEntry],
    places: Sequence[RowPlaces],
) -> DisplacedFiles:
    """Return the file changes that remove the rows at places that work units stored."""
    displaced_counts: dict[str, int] = {}
    for path, count in (pair for part in places for pair in part.counts):
        file = normalize_file_path(path)
        displaced_counts[file] = displaced_counts.get(file, 0) + count
    with translate_duckdb_errors(), connect_duckdb() as con:
        displacer = RowDisplacer(version.files, con, version.metadata, metadata, manifest_entries)
        units = displacer.plan_units(displaced_counts, runner.parallel_units)
    if not units:
        return DisplacedFiles()
    splitter = _PlaceSplitter(tuple(_number_files(units)))
    work = _UnitDisplacer(version.files, drop_history(version.metadata), drop_history(metadata), tuple(units))
    locations = [part.location for part in places if part.location is not None]
    results = runner.run_shuffled(splitter, locations, work, len(units))
    return DisplacedFiles(
        tuple(file for result in results for file in result.added),
        tuple(entry for result in results for entry in result.removed),
    )


@dataclass(frozen=True)
class _DisplacementUnit:
    """Data files that lose rows, with all files that are needed for it: marked, all of one partition, or rewritten."""

    changed_entries: tuple[FileEntry, ...]
    entries: tuple[FileEntry, ...]
    is_marked: bool


def _number_files(units: "Sequence[_DisplacementUnit]") -> "Iterator[tuple[str, int]]":
    for number, unit in enumerate(units):
        for entry in unit.changed_entries:
            yield normalize_location(entry.path), number


@dataclass(frozen=True)
class _PlaceSplitter:
    """Splits a file of places by the units to which their data files belong."""

    unit_numbers: tuple[tuple[str, int], ...]

    def __call__(self, location: str) -> "Iterator[tuple[int, bytes]]":
        with translate_duckdb_errors(), connect_duckdb() as con:
            paths, numbers = zip(*self.unit_numbers, strict=True)
            con.register("runnel_units", pa.table({"file": list(paths), "unit": list(numbers)}))
            places = f"read_parquet({quote_exact_path(normalize_location(location))}, hive_partitioning = false)"
            rows = f"SELECT places.*, units.unit FROM {places} AS places JOIN runnel_units AS units USING (file)"
            yield from split_by_bucket(con, rows, "unit")


@dataclass(frozen=True)
class _UnitDisplacer:
    """Removes the rows at the places of a unit."""

    files: WarehouseFiles
    base_metadata: "TableMetadata"
    metadata: "TableMetadata"
    units: tuple[_DisplacementUnit, ...]

    def __call__(self, number: int, pieces: "Iterator[bytes]") -> DisplacedFiles:
        with translate_duckdb_errors(), connect_duckdb() as con:
            con.execute(f"CREATE TEMP TABLE {DISPLACED_TABLE} (file VARCHAR, pos BIGINT, unit INTEGER)")
            load_pieces(con, [DISPLACED_TABLE], pieces)
            unit = self.units[number]
            displacer = RowDisplacer(self.files, con, self.base_metadata, self.metadata, unit.entries)
            return displacer.displace_unit(unit)


class RowDisplacer:
    """Removes rows at known places from the files of a version."""

    def __init__(
        self,
        store: "FileAccess",
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
        displaced_counts = self._count_by_file(f"SELECT file, count(*) FROM {DISPLACED_TABLE} GROUP BY file")
        rewritten_entries, marked_entries = self._choose_files(displaced_counts)
        delete_files, replaced_deletes = self._mark_deleted(marked_entries, [*marked_entries, *self._data.values()])
        return DisplacedFiles(
            (*self._rewrite_files(rewritten_entries), *delete_files), (*rewritten_entries, *replaced_deletes)
        )

    def plan_units(self, displaced_counts: Mapping[str, int], parallel_units: int) -> list[_DisplacementUnit]:
        """Return what has to be done if files lose this many rows."""
        rewritten_entries, marked_entries = self._choose_files(displaced_counts)
        units = []
        for unit in build_scan_units([*rewritten_entries, *self._deletes], parallel_units):
            changed_entries = tuple(entry for entry in unit.entries if entry.is_data)
            units.append(_DisplacementUnit(changed_entries, unit.entries, is_marked=False))
        live_entries = _group_by_partition([*marked_entries, *self._data.values()])
        for partition_key, group in _group_by_partition(marked_entries).items():
            old_deletes = [entry for entry in self._deletes if partition_of(entry) == partition_key]
            data = live_entries[partition_key] if len(old_deletes) >= MOST_MARKS else group
            units.append(_DisplacementUnit(tuple(group), (*data, *old_deletes), is_marked=True))
        return units

    def displace_unit(self, unit: _DisplacementUnit) -> DisplacedFiles:
        """Mark or rewrite the rows of a unit, to which this displacer's files belong."""
        if not unit.is_marked:
            return DisplacedFiles(tuple(self._rewrite_files(unit.changed_entries)), unit.changed_entries)
        delete_files, replaced_deletes = self._mark_deleted(unit.changed_entries, list(self._data.values()))
        return DisplacedFiles(tuple(delete_files), tuple(replaced_deletes))

    def _choose_files(self, displaced_counts: Mapping[str, int]) -> tuple[list[FileEntry], list[FileEntry]]:
        """Return the files to rewrite and those to mark; what remains in `_data` loses no rows."""
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
        return rewritten_entries, marked_entries

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
            f"SELECT {', '.join(columns)} FROM ({rows}) AS old ANTI JOIN {DISPLACED_TABLE} AS gone ON {is_same_place}"
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
            places = f"SELECT file, pos FROM {DISPLACED_TABLE}"
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
