"""Manifests: which data and delete files a version has, read once and written in small pieces.

Manifests never change, so what was read is kept in memory. They stay small, about a megabyte, so that a difference
between two versions reads little: only the manifests that they don't share.
"""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from runnel.lake.iceberg.file_io import missing

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from runnel.lake.store import Store

MOST_ENTRIES = 4000  # about one megabyte
MERGE_COUNT = 10
CACHED_ENTRIES = 400_000
CACHED_MANIFESTS = 40_000


@dataclass(frozen=True)
class Entry:
    """A live file of a version: data or deletes, with the sequence number that says which deletes apply."""

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
        """Tell rows from deletes."""
        return self.file.content == DataFileContent.DATA

    @property
    def is_equality_delete(self) -> bool:
        """Tell whether it removes rows by value."""
        return self.file.content == DataFileContent.EQUALITY_DELETES


class _Cache:
    """Parsed manifests, the least recently used dropped first."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._lists: OrderedDict[str, tuple[ManifestFile, ...]] = OrderedDict()
        self._entries: OrderedDict[str, tuple[Entry, ...]] = OrderedDict()
        self._count = 0
        self._listed = 0

    def manifests(self, path: str) -> tuple[ManifestFile, ...] | None:
        with self._guard:
            if path in self._lists:
                self._lists.move_to_end(path)
            return self._lists.get(path)

    def keep_manifests(self, path: str, found: tuple[ManifestFile, ...]) -> None:
        with self._guard:
            if path not in self._lists:
                self._listed += 1 + len(found)
            self._lists[path] = found
            while self._listed > CACHED_MANIFESTS and len(self._lists) > 1:
                self._listed -= 1 + len(self._lists.popitem(last=False)[1])

    def entries(self, path: str) -> tuple[Entry, ...] | None:
        with self._guard:
            if path in self._entries:
                self._entries.move_to_end(path)
            return self._entries.get(path)

    def keep_entries(self, path: str, found: tuple[Entry, ...]) -> None:
        with self._guard:
            if path not in self._entries:
                self._count += len(found)
            self._entries[path] = found
            while self._count > CACHED_ENTRIES and len(self._entries) > 1:
                self._count -= len(self._entries.popitem(last=False)[1])

    def clear(self) -> None:
        with self._guard:
            self._lists.clear()
            self._entries.clear()
            self._count = self._listed = 0


_cache = _Cache()


def forget() -> None:
    """Drop everything kept in memory."""
    _cache.clear()


def manifests(store: "Store", metadata: TableMetadata) -> tuple[ManifestFile, ...]:
    """Return the manifests of a version, in the order of its list."""
    snapshot = metadata.current_snapshot()
    return listed_in(store, snapshot.manifest_list) if snapshot else ()


def listed_in(store: "Store", manifest_list: str) -> tuple[ManifestFile, ...]:
    """Return the manifests that a manifest list names."""
    found = _cache.manifests(manifest_list)
    if found is None:
        try:
            found = tuple(read_manifest_list(store.io.new_input(manifest_list)))
        except FileNotFoundError as error:
            raise missing(manifest_list) from error
        _cache.keep_manifests(manifest_list, found)
    return found


def entries_in(store: "Store", manifest: ManifestFile) -> tuple[Entry, ...]:
    """Return the live entries of one manifest."""
    found = _cache.entries(manifest.manifest_path)
    if found is None:
        try:
            read = manifest.fetch_manifest_entry(store.io, discard_deleted=True)
        except FileNotFoundError as error:
            raise missing(manifest.manifest_path) from error
        found = tuple(_entry(entry, manifest) for entry in read)
        _cache.keep_entries(manifest.manifest_path, found)
    return found


def entries(store: "Store", metadata: TableMetadata) -> Iterator[Entry]:
    """Yield every live file of a version, data and deletes."""
    for manifest in manifests(store, metadata):
        yield from entries_in(store, manifest)


def _entry(entry: ManifestEntry, manifest: ManifestFile) -> Entry:
    sequence = entry.sequence_number or 0
    return Entry(
        entry.data_file,
        sequence,
        entry.file_sequence_number if entry.file_sequence_number is not None else sequence,
        entry.snapshot_id or manifest.added_snapshot_id or 0,
        manifest.manifest_path,
    )


class _DeleteManifestWriter(ManifestWriterV2):
    """PyIceberg writes manifests of data only; this one lists delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class Pen:
    """Writes the manifests and the manifest list of one new snapshot, below a table's metadata folder."""

    def __init__(self, store: "Store", metadata: TableMetadata, snapshot_id: int) -> None:
        self.store = store
        self.metadata = metadata
        self.snapshot_id = snapshot_id
        self.uuid = uuid.uuid4().hex
        self._count = 0

    def added(self, files: Sequence[DataFile], sequence: int | None = None) -> list[ManifestFile]:
        """Write manifests of new files, one per partition spec and content.

        `sequence` makes rewritten rows as old as the rows that they replace, so that the same deletes apply.
        """
        made = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=self.snapshot_id, sequence_number=sequence, data_file=file
            )
            for file in files
        ]
        return self._write_groups(made)

    def taken(self, found: Sequence[Entry], newest: int) -> list[ManifestFile]:
        """Write manifests of files that another version of the table has.

        Data keeps its age, so that the deletes that apply to it still do; deletes are as new as the snapshot.
        """
        made = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self.snapshot_id,
                sequence_number=min(entry.sequence, newest) if entry.is_data else None,
                data_file=entry.file,
            )
            for entry in found
        ]
        return self._write_groups(made)

    def existing(self, kept: Sequence[Entry]) -> list[ManifestFile]:
        """Write manifests that carry files over, with their sequence numbers."""
        return self._write_groups([_carried(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for entry in kept])

    def rewritten(self, kept: Sequence[Entry], removed: Sequence[Entry]) -> list[ManifestFile]:
        """Write manifests that carry `kept` over and record `removed` as deleted by this snapshot."""
        gone = [_carried(entry, ManifestEntryStatus.DELETED, self.snapshot_id) for entry in removed]
        return self._write_groups(
            [_carried(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for entry in kept] + gone
        )

    def carried(self, entries: Sequence[ManifestEntry]) -> list[ManifestFile]:
        """Write manifests of entries as they are."""
        return self._write_groups(entries)

    def manifest_list(self, found: Sequence[ManifestFile], sequence: int, parent: int | None) -> str:
        """Write the manifest list of the snapshot and return its location."""
        location = f"{self._folder()}/snap-{self.snapshot_id}-0-{self.uuid}.avro"
        with write_manifest_list(
            2, self.store.io.new_output(location), self.snapshot_id, parent, sequence, "deflate"
        ) as writer:
            writer.add_manifests(list(found))
        failpoints.reach(failpoints.WRITE_MANIFEST_LIST)
        return location

    def _write_groups(self, made: Iterable[ManifestEntry]) -> list[ManifestFile]:
        groups: dict[tuple[int, bool], list[ManifestEntry]] = {}
        for entry in made:
            deletes = entry.data_file.content != DataFileContent.DATA
            groups.setdefault((entry.data_file.spec_id, deletes), []).append(entry)
        found: list[ManifestFile] = []
        for (spec_id, deletes), group in sorted(groups.items(), key=lambda item: item[0]):
            starts = range(0, len(group), MOST_ENTRIES)
            found.extend(self._write(spec_id, deletes, group[start : start + MOST_ENTRIES]) for start in starts)
        return found

    def _write(self, spec_id: int, deletes: bool, group: Sequence[ManifestEntry]) -> ManifestFile:
        location = f"{self._folder()}/{self.uuid}-m{self._count}.avro"
        self._count += 1
        spec, schema = self.metadata.specs()[spec_id], _schema_of(self.metadata, spec_id)
        kind = _DeleteManifestWriter if deletes else ManifestWriterV2
        with kind(spec, schema, self.store.io.new_output(location), self.snapshot_id, "deflate") as writer:
            for entry in group:
                writer.add_entry(entry)
        failpoints.reach(failpoints.WRITE_MANIFEST)
        return writer.to_manifest_file()

    def _folder(self) -> str:
        return f"{self.metadata.location}/metadata"


def _carried(entry: Entry, status: ManifestEntryStatus, snapshot_id: int) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence,
        file_sequence_number=entry.file_sequence,
        data_file=entry.file,
    )


def _schema_of(metadata: TableMetadata, spec_id: int) -> "Schema":
    """Return a schema that has every column that a partition spec refers to; an old spec may need an old schema."""
    spec: PartitionSpec = metadata.specs()[spec_id]
    wanted = {field.source_id for field in spec.fields}
    for schema in [metadata.schema(), *reversed(metadata.schemas)]:
        if wanted <= set(schema.field_ids):
            return schema
    return metadata.schema()


def has_equality_deletes(store: "Store", manifest: ManifestFile) -> bool:
    """Tell whether a manifest lists deletes by value; PyIceberg writes those in a form that Spark can't read."""
    is_deletes = manifest.content == ManifestContent.DELETES
    return is_deletes and any(entry.is_equality_delete for entry in entries_in(store, manifest))


def _mergeable(store: "Store", group: Sequence[ManifestFile]) -> list[ManifestFile]:
    return [manifest for manifest in group if not has_equality_deletes(store, manifest)]


def merged(store: "Store", pen: Pen, found: Sequence[ManifestFile]) -> list[ManifestFile]:
    """Return manifests with many small ones merged, in tiers of ten, so that each file is carried a few times only."""
    tiers: dict[tuple[int, int, int], list[ManifestFile]] = {}
    for manifest in found:
        count = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        if manifest.added_snapshot_id != pen.snapshot_id and count < MOST_ENTRIES // MERGE_COUNT:
            tier = len(str(max(count, 1)))
            tiers.setdefault((manifest.partition_spec_id, int(manifest.content), tier), []).append(manifest)
    full = [group for group in tiers.values() if len(group) >= MERGE_COUNT]
    full = [group for group in (_mergeable(store, group) for group in full) if len(group) >= MERGE_COUNT]
    if not full:
        return list(found)
    gone = {manifest.manifest_path for group in full for manifest in group}
    kept = [manifest for manifest in found if manifest.manifest_path not in gone]
    for group in full:
        carried = [entry for manifest in group for entry in entries_in(store, manifest)]
        kept.extend(pen.existing(carried))
    return kept
