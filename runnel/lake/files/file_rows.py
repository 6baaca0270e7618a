"""Read the rows of file tables: the paths of a version, their contents, and what changed between two versions.

Reads only the requested columns, and only row groups that may contain the requested paths.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat, ManifestContent
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import StringType

from runnel.errors import CorruptData, RunnelError
from runnel.lake.diff.file_delta import compute_file_delta
from runnel.lake.iceberg.file_io import local_path, missing_file_error, normalize_location
from runnel.lake.iceberg.manifests import FileEntry, read_manifest_entries, read_manifests
from runnel.lake.iceberg.table_metadata import load_metadata

if TYPE_CHECKING:
    from runnel.lake.store import Store

PathRangeTest = Callable[[str | None, str | None], bool]
"""Returns whether a requested path may lie between two paths; None is an unknown bound."""


@dataclass(frozen=True)
class LiveFile:
    """A data file of a version, and the positions of its rows that another engine deleted."""

    entry: FileEntry
    deleted_positions: frozenset[int] = frozenset()


def list_live_files(
    store: "Store", metadata: TableMetadata, chosen: Iterable[FileEntry] | None = None
) -> list[LiveFile]:
    """Return data files with their deleted positions; by default all data files of the version."""
    manifest_files = read_manifests(store, metadata)
    if chosen is None:
        data = [manifest for manifest in manifest_files if manifest.content == ManifestContent.DATA]
        chosen = (entry for manifest in data for entry in read_manifest_entries(store, manifest))
    deletes = [manifest for manifest in manifest_files if manifest.content == ManifestContent.DELETES]
    deletes_by_path = _read_position_deletes(
        store, [entry for manifest in deletes for entry in read_manifest_entries(store, manifest)]
    )
    data_entries = [entry for entry in chosen if entry.is_data]
    if any(entry.file.file_format != FileFormat.PARQUET for entry in data_entries):
        raise _foreign_error("files that are not Parquet")
    return [LiveFile(entry, _find_deleted_positions(entry, deletes_by_path)) for entry in data_entries]


def _read_position_deletes(store: "Store", deletes: Sequence[FileEntry]) -> dict[str, list[tuple[int, int]]]:
    """Return for each data file a list of (sequence of the delete file, deleted position)."""
    deletes_by_path: dict[str, list[tuple[int, int]]] = {}
    for entry in deletes:
        if entry.is_equality_delete or entry.file.file_format != FileFormat.PARQUET:
            raise _foreign_error("equality deletes" if entry.is_equality_delete else "deletes that are not Parquet")
        with _open_parquet(store, entry.path) as file:
            table = file.read(columns=["file_path", "pos"])
        for path, position in zip(column_values(table, "file_path"), column_values(table, "pos"), strict=True):
            deletes_by_path.setdefault(normalize_location(path), []).append((entry.sequence, position))
    return deletes_by_path


def _find_deleted_positions(entry: FileEntry, deletes_by_path: dict[str, list[tuple[int, int]]]) -> frozenset[int]:
    deletes = deletes_by_path.get(normalize_location(entry.path), ()) if deletes_by_path else ()
    return frozenset(position for sequence, position in deletes if sequence >= entry.sequence)


def read_path_bounds(metadata: TableMetadata, entry: FileEntry) -> tuple[str | None, str | None]:
    """Return the lowest and highest path of a data file; None if its writer did not record it."""
    field = metadata.schema().find_field("path").field_id
    ends = ((entry.file.lower_bounds or {}).get(field), (entry.file.upper_bounds or {}).get(field))
    low, high = (None if end is None else str(from_bytes(StringType(), end)) for end in ends)
    return low, high


class LiveFileReader:
    """Reads an open data file by row group; columns are found by field id and get the table's current names."""

    def __init__(self, metadata: TableMetadata, live_file: LiveFile, file: pq.ParquetFile) -> None:
        self.location = live_file.entry.path
        self.deleted_positions = live_file.deleted_positions
        self.file = file
        self.schema: pa.Schema = schema_to_pyarrow(metadata.schema())
        by_id = {(field.metadata or {}).get(b"PARQUET:field_id"): field.name for field in file.schema_arrow}
        present = set(file.schema_arrow.names)
        self.stored_names: dict[str, str | None] = {}
        for field in metadata.schema().fields:
            unmapped_name = field.name if field.name in present and set(by_id) == {None} else None
            self.stored_names[field.name] = by_id.get(str(field.field_id).encode(), unmapped_name)

    def find_row_groups(self, may_contain: PathRangeTest) -> list[int]:
        """Return the row groups that may contain a requested path."""
        column = self.file.schema_arrow.names.index(self.stored_names["path"] or "")
        row_groups = []
        for group in range(self.file.metadata.num_row_groups):
            statistics = self.file.metadata.row_group(group).column(column).statistics
            if statistics is None or not statistics.has_min_max or may_contain(statistics.min, statistics.max):
                row_groups.append(group)
        return row_groups

    def read_group(self, group: int, columns: Sequence[str], batch_rows: int = 65536) -> Iterator[pa.Table]:
        """Yield the live rows of a row group, in batches."""
        requested_names = {name: self.stored_names[name] for name in columns}
        position = sum(self.file.metadata.row_group(before).num_rows for before in range(group))
        # Always read at least one column: without any, the rows of absent columns could not be counted.
        stored = [name for name in requested_names.values() if name is not None] or [str(self.stored_names["path"])]
        with _translate_read_errors(self.location):
            for batch in self.file.iter_batches(batch_rows, row_groups=[group], columns=stored):
                yield self._rename_columns(self._drop_deleted(batch, position), requested_names)
                position += batch.num_rows

    def _drop_deleted(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        if not self.deleted_positions:
            return batch
        return batch.filter(
            pa.array([first + row not in self.deleted_positions for row in range(batch.num_rows)], pa.bool_())
        )

    def _rename_columns(self, batch: pa.RecordBatch, requested_names: dict[str, str | None]) -> pa.Table:
        schema = pa.schema([self.schema.field(name) for name in requested_names])
        columns = [
            pa.nulls(batch.num_rows, field.type) if stored is None else batch.column(stored).cast(field.type)
            for field, stored in zip(schema, requested_names.values(), strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=schema)


@contextmanager
def open_live_file(store: "Store", metadata: TableMetadata, live_file: LiveFile) -> Iterator[LiveFileReader]:
    """Open a data file while the block runs."""
    with _open_parquet(store, live_file.entry.path) as file:
        yield LiveFileReader(metadata, live_file, file)


def scan_rows(
    store: "Store",
    metadata: TableMetadata,
    live_files: Iterable[LiveFile],
    columns: Sequence[str],
    may_contain: PathRangeTest | None = None,
) -> Iterator[tuple[LiveFile, int, pa.Table]]:
    """Yield the live rows of data files, with their data file and row group."""
    may_contain = may_contain or (lambda *_: True)
    for live_file in live_files:
        if not may_contain(*read_path_bounds(metadata, live_file.entry)):
            continue
        with open_live_file(store, metadata, live_file) as reader:
            for group in reader.find_row_groups(may_contain):
                for table in reader.read_group(group, columns):
                    yield live_file, group, table


def column_values(table: pa.Table, column: str) -> list[Any]:
    """Return a column as Python values; times as microseconds since the epoch, which may be out of Python's range."""
    column_data = table[column]
    return (
        column_data.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column_data.type) else column_data.to_pylist()
    )


def find_changed_paths(store: "Store", before: str | None, after: str | None) -> dict[str, str | None]:
    """Return the paths whose contents differ between two versions, with the newer sha256; None for a removed path.

    Reads only data files that one version has and the other has not.
    """
    file_delta = compute_file_delta(store, before, after)
    has_deletes = any(not entry.is_data for entry in (*file_delta.added, *file_delta.removed))
    old = _read_checksums(store, before, None if has_deletes else file_delta.removed)
    new = _read_checksums(store, after, None if has_deletes else file_delta.added)
    changed: dict[str, str | None] = {path: new.get(path) for path, sha256 in old.items() if new.get(path) != sha256}
    changed.update((path, sha256) for path, sha256 in new.items() if path not in old)
    return changed


def _read_checksums(store: "Store", location: str | None, chosen: Iterable[FileEntry] | None) -> dict[str, str]:
    if location is None:
        return {}
    metadata = load_metadata(store, location)
    checksums_by_path: dict[str, str] = {}
    for _, _, table in scan_rows(store, metadata, list_live_files(store, metadata, chosen), ["path", "sha256"]):
        checksums = (sha256 or "" for sha256 in column_values(table, "sha256"))
        checksums_by_path.update(zip(column_values(table, "path"), checksums, strict=True))
    return checksums_by_path


@contextmanager
def _open_parquet(store: "Store", location: str) -> Iterator[pq.ParquetFile]:
    path = local_path(location)
    with _translate_read_errors(location):
        source: Any = str(path) if path is not None else store.io.new_input(location).open()
        file = pq.ParquetFile(source)
    with file:
        yield file


@contextmanager
def _translate_read_errors(location: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise missing_file_error(location) from error
    except (pa.ArrowException, OSError) as error:
        what = f"the lake's file {normalize_location(location)} is damaged: {str(error).splitlines()[0]}"
        raise CorruptData("LAKE_FILE_DAMAGED", what, fix="run `runnel fsck`, and restore it from a backup") from error


def _foreign_error(what: str) -> RunnelError:
    fix = "rewrite the table with the engine that wrote them, for example with Iceberg's rewrite_data_files"
    return RunnelError("FILES_FOREIGN", f"another engine wrote {what} to this file table", fix=fix)
