"""Read and write manifests: the lists of data and delete files of a version.

Manifests never change, so they are cached in memory. They stay small, about a megabyte, so that comparing two versions
reads little: only the manifests that the versions don't share.
"""

import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachetools import LRUCache, cached
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    read_manifest_list,
    write_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata

from runnel.lake import failpoints
from runnel.lake.iceberg.file_io import missing_file_error

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from runnel.lake.warehouse_files import FileAccess

MAX_ENTRIES = 4000  # about one megabyte
MERGE_COUNT = 10
CACHED_ENTRIES = 400_000
CACHED_MANIFESTS = 40_000


@dataclass(frozen=True)
class FileEntry:
    """A live data or delete file of a version, with the sequence number that determines which deletes apply."""

    file: DataFile
    sequence: int
    file_sequence: int
    snapshot_id: int
    manifest: str

    @property
    def path(self) -> str:
        """Return the location of the file."""
        return self.file.file_path

    @property
    def is_data(self) -> bool:
        """Return whether it is a data file, not a delete file."""
        return self.file.content == DataFileContent.DATA

    @property
    def is_equality_delete(self) -> bool:
        """Return whether it is a file of equality deletes."""
        return self.file.content == DataFileContent.EQUALITY_DELETES


def _count_manifests(manifest_files: tuple[ManifestFile, ...]) -> int:
    return min(1 + len(manifest_files), CACHED_MANIFESTS)  # the cache holds even the longest list


def _count_entries(file_entries: tuple[FileEntry, ...]) -> int:
    return min(len(file_entries), CACHED_ENTRIES)


_cached_lists: LRUCache[str, tuple[ManifestFile, ...]] = LRUCache(CACHED_MANIFESTS, getsizeof=_count_manifests)
_cached_entries: LRUCache[str, tuple[FileEntry, ...]] = LRUCache(CACHED_ENTRIES, getsizeof=_count_entries)
_guard = threading.Lock()


def clear_cache() -> None:
    """Drop all cached manifests."""
    with _guard:
        _cached_lists.clear()
        _cached_entries.clear()


def read_manifests(store: "FileAccess", metadata: TableMetadata) -> tuple[ManifestFile, ...]:
    """Return the manifests of a version, in the order of its list."""
    snapshot = metadata.current_snapshot()
    return read_listed_manifests(store, snapshot.manifest_list) if snapshot else ()


@cached(_cached_lists, key=lambda _, manifest_list: manifest_list, lock=_guard)
def read_listed_manifests(store: "FileAccess", manifest_list: str) -> tuple[ManifestFile, ...]:
    """Return the manifests that a manifest list names."""
    try:
        return tuple(read_manifest_list(store.io.new_input(manifest_list)))
    except FileNotFoundError as error:
        raise missing_file_error(manifest_list) from error


@cached(_cached_entries, key=lambda _, manifest: manifest.manifest_path, lock=_guard)
def read_manifest_entries(store: "FileAccess", manifest: ManifestFile) -> tuple[FileEntry, ...]:
    """Return the live entries of one manifest."""
    try:
        manifest_entries = manifest.fetch_manifest_entry(store.io, discard_deleted=True)
    except FileNotFoundError as error:
        raise missing_file_error(manifest.manifest_path) from error
    return tuple(_to_file_entry(entry, manifest) for entry in manifest_entries)


def read_entries(store: "FileAccess", metadata: TableMetadata) -> Iterator[FileEntry]:
    """Yield every live file of a version, data and deletes."""
    for manifest in read_manifests(store, metadata):
        yield from read_manifest_entries(store, manifest)


def _to_file_entry(entry: ManifestEntry, manifest: ManifestFile) -> FileEntry:
    sequence = entry.sequence_number or 0
    return FileEntry(
        entry.data_file,
        sequence,
        entry.file_sequence_number if entry.file_sequence_number is not None else sequence,
        entry.snapshot_id or manifest.added_snapshot_id or 0,
        manifest.manifest_path,
    )


class _DeleteManifestWriter(ManifestWriterV2):
    """A writer of manifests of delete files; PyIceberg writes manifests of data files only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class SnapshotManifestWriter:
    """Writes the manifests and the manifest list of one new snapshot, below a table's metadata folder."""

    def __init__(self, store: "FileAccess", metadata: TableMetadata, snapshot_id: int) -> None:
        self.store = store
        self.metadata = metadata
        self.snapshot_id = snapshot_id
        self.uuid = uuid.uuid4().hex
        self._manifest_count = 0

    def write_added(self, files: Sequence[DataFile], sequence: int | None = None) -> list[ManifestFile]:
        """Write manifests of new files, one per partition spec and content.

        `sequence` gives rewritten rows the sequence number of the rows that they replace, so that the same deletes
        apply.
        """
        manifest_entries = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=self.snapshot_id, sequence_number=sequence, data_file=file
            )
            for file in files
        ]
        return self._write_groups(manifest_entries)

    def write_from_other_version(self, file_entries: Sequence[FileEntry], newest: int) -> list[ManifestFile]:
        """Write manifests of files that come from another version of the table.

        Data files keep their sequence number, so that the same deletes apply; delete files get the snapshot's.
        """
        manifest_entries = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self.snapshot_id,
                sequence_number=min(entry.sequence, newest) if entry.is_data else None,
                data_file=entry.file,
            )
            for entry in file_entries
        ]
        return self._write_groups(manifest_entries)

    def write_existing(self, file_entries: Sequence[FileEntry]) -> list[ManifestFile]:
        """Write manifests of existing files, with their sequence numbers."""
        return self._write_groups(
            [_to_manifest_entry(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for entry in file_entries]
        )

    def write_rewritten(self, retained: Sequence[FileEntry], removed: Sequence[FileEntry]) -> list[ManifestFile]:
        """Write manifests with `retained` as existing files and `removed` as files deleted by this snapshot."""
        deleted_entries = [
            _to_manifest_entry(entry, ManifestEntryStatus.DELETED, self.snapshot_id) for entry in removed
        ]
        return self._write_groups(
            [_to_manifest_entry(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for entry in retained]
            + deleted_entries
        )

    def write_entries(self, manifest_entries: Sequence[ManifestEntry]) -> list[ManifestFile]:
        """Write manifests of unchanged entries."""
        return self._write_groups(manifest_entries)

    def write_list(self, manifest_files: Sequence[ManifestFile], sequence: int, parent: int | None) -> str:
        """Write the manifest list of the snapshot and return its location."""
        location = f"{self._folder()}/snap-{self.snapshot_id}-0-{self.uuid}.avro"
        with write_manifest_list(
            2, self.store.io.new_output(location), self.snapshot_id, parent, sequence, "deflate"
        ) as writer:
            writer.add_manifests(list(manifest_files))
        failpoints.reach(failpoints.WRITE_MANIFEST_LIST)
        return location

    def _write_groups(self, manifest_entries: Iterable[ManifestEntry]) -> list[ManifestFile]:
        groups: dict[tuple[int, bool], list[ManifestEntry]] = {}
        for entry in manifest_entries:
            is_deletes = entry.data_file.content != DataFileContent.DATA
            groups.setdefault((entry.data_file.spec_id, is_deletes), []).append(entry)
        manifest_files: list[ManifestFile] = []
        for (spec_id, is_deletes), group in sorted(groups.items(), key=lambda item: item[0]):
            starts = range(0, len(group), MAX_ENTRIES)
            manifest_files.extend(
                self._write_manifest(spec_id, is_deletes, group[start : start + MAX_ENTRIES]) for start in starts
            )
        return manifest_files

    def _write_manifest(self, spec_id: int, is_deletes: bool, group: Sequence[ManifestEntry]) -> ManifestFile:
        location = f"{self._folder()}/{self.uuid}-m{self._manifest_count}.avro"
        self._manifest_count += 1
        spec, schema = self.metadata.specs()[spec_id], _find_schema(self.metadata, spec_id)
        writer_class = _DeleteManifestWriter if is_deletes else ManifestWriterV2
        with writer_class(spec, schema, self.store.io.new_output(location), self.snapshot_id, "deflate") as writer:
            for entry in group:
                writer.add_entry(entry)
        failpoints.reach(failpoints.WRITE_MANIFEST)
        return writer.to_manifest_file()

    def _folder(self) -> str:
        return f"{self.metadata.location}/metadata"


def _to_manifest_entry(entry: FileEntry, status: ManifestEntryStatus, snapshot_id: int) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence,
        file_sequence_number=entry.file_sequence,
        data_file=entry.file,
    )


def _find_schema(metadata: TableMetadata, spec_id: int) -> "Schema":
    """Return a schema with every column that a partition spec refers to; an old spec may need an old schema."""
    spec: PartitionSpec = metadata.specs()[spec_id]
    source_ids = {field.source_id for field in spec.fields}
    for schema in [metadata.schema(), *reversed(metadata.schemas)]:
        if source_ids <= set(schema.field_ids):
            return schema
    return metadata.schema()


def has_equality_deletes(store: "FileAccess", manifest: ManifestFile) -> bool:
    """Return whether a manifest lists equality deletes; PyIceberg writes those in a form that Spark can't read."""
    is_deletes = manifest.content == ManifestContent.DELETES
    return is_deletes and any(entry.is_equality_delete for entry in read_manifest_entries(store, manifest))


def _without_equality_deletes(store: "FileAccess", group: Sequence[ManifestFile]) -> list[ManifestFile]:
    return [manifest for manifest in group if not has_equality_deletes(store, manifest)]


def merge_small_manifests(
    store: "FileAccess", writer: SnapshotManifestWriter, manifest_files: Sequence[ManifestFile]
) -> list[ManifestFile]:
    """Merge small manifests, in size tiers of ten, so that each file's entry is rewritten only a few times."""
    tiers: dict[tuple[int, int, int], list[ManifestFile]] = {}
    for manifest in manifest_files:
        count = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        if manifest.added_snapshot_id != writer.snapshot_id and count < MAX_ENTRIES // MERGE_COUNT:
            tier = len(str(max(count, 1)))
            tiers.setdefault((manifest.partition_spec_id, int(manifest.content), tier), []).append(manifest)
    full_groups = [group for group in tiers.values() if len(group) >= MERGE_COUNT]
    full_groups = [
        group
        for group in (_without_equality_deletes(store, group) for group in full_groups)
        if len(group) >= MERGE_COUNT
    ]
    if not full_groups:
        return list(manifest_files)
    merged_paths = {manifest.manifest_path for group in full_groups for manifest in group}
    result = [manifest for manifest in manifest_files if manifest.manifest_path not in merged_paths]
    for group in full_groups:
        file_entries = [entry for manifest in group for entry in read_manifest_entries(store, manifest)]
        result.extend(writer.write_existing(file_entries))
    return result
