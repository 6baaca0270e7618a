"""Rewrite versions of a table so that they list other files, and nothing else about them changes.

Snapshot ids, sequence numbers and the table's identity stay. A rewritten version lists only its current snapshot, and
its manifests only live files: entries of removed files would still tell the bounds of their values. Nothing points at
a rewritten version until the caller says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, Summary

from runnel.errors import Broken
from runnel.lake.iceberg.file_io import missing
from runnel.lake.iceberg.manifests import Entry, Pen, entries_in, listed_in
from runnel.lake.iceberg.table_metadata import load, write

if TYPE_CHECKING:
    from runnel.lake.store import Store

# What a summary says of single files and values; the totals are counted anew.
_COUNTED = ("added-", "deleted-", "removed-", "partitions.", "changed-partition-count", "total-", "partition-summaries")


@dataclass(frozen=True)
class Listed:
    """A manifest with what it lists: live entries, and the paths of those that it records as removed."""

    manifest: ManifestFile
    live: tuple[Entry, ...]
    removed: frozenset[str]


@dataclass(frozen=True)
class Held:
    """A version with its manifests. `older` are those of other snapshots that it still lists, where they exist."""

    location: str
    metadata: TableMetadata
    current: tuple[Listed, ...]
    older: tuple[Listed, ...]

    def lists(self) -> set[str]:
        """Return the manifest lists of all its snapshots."""
        return {snapshot.manifest_list for snapshot in self.metadata.snapshots}


class Library:
    """Reads versions whole; a manifest that many versions share is read once."""

    def __init__(self, store: "Store") -> None:
        self.store = store
        self._read: dict[str, Listed] = {}

    def held(self, location: str) -> Held:
        """Return a version with its manifests, or raise Broken where a file of its current snapshot is gone."""
        metadata = load(self.store, location)
        snapshot = metadata.current_snapshot()
        current = self._listed(snapshot) if snapshot else ()
        known = {listed.manifest.manifest_path for listed in current}
        older: dict[str, Listed] = {}
        for other in metadata.snapshots:
            if snapshot is None or other.snapshot_id != snapshot.snapshot_id:
                for listed in self._if_there(other):
                    if listed.manifest.manifest_path not in known:
                        older[listed.manifest.manifest_path] = listed
        return Held(location, metadata, current, tuple(older.values()))

    def _if_there(self, snapshot: Snapshot) -> tuple[Listed, ...]:
        try:
            return self._listed(snapshot)
        except Broken:  # no version needs it any more, so it may have been swept
            return ()

    def _listed(self, snapshot: Snapshot) -> tuple[Listed, ...]:
        return tuple(self._manifest(manifest) for manifest in listed_in(self.store, snapshot.manifest_list))

    def _manifest(self, manifest: ManifestFile) -> Listed:
        path = manifest.manifest_path
        if path not in self._read:
            live = entries_in(self.store, manifest)
            gone = self._removed(manifest) if manifest.deleted_files_count != 0 else frozenset()
            self._read[path] = Listed(manifest, live, gone)
        return self._read[path]

    def _removed(self, manifest: ManifestFile) -> frozenset[str]:
        try:
            found = manifest.fetch_manifest_entry(self.store.io, discard_deleted=False)
        except FileNotFoundError as error:
            raise missing(manifest.manifest_path) from error
        gone = (entry.data_file for entry in found if entry.status == ManifestEntryStatus.DELETED)
        return frozenset(file.file_path for file in gone)


class Rewriter:
    """Writes versions anew; a manifest that many versions share is written once."""

    def __init__(self, store: "Store") -> None:
        self.store = store
        self._made: dict[tuple[str, tuple[tuple[str, str | None], ...]], list[ManifestFile]] = {}

    def rewritten(self, held: Held, replaced: Mapping[str, DataFile | None]) -> str:
        """Return a version with other files in the place of `replaced`; None takes a file out."""
        metadata, snapshot = held.metadata, held.metadata.current_snapshot()
        update: dict[str, object] = {"metadata_log": [], "statistics": [], "partition_statistics": []}
        now = self._snapshot(held, snapshot, replaced) if snapshot else None
        if now is None:  # without a file there is nothing to list, and some readers take an empty list for a broken one
            update |= {"current_snapshot_id": None, "snapshots": [], "snapshot_log": [], "refs": {}}
        else:
            here = now.snapshot_id
            update |= {
                "snapshots": [now],
                "snapshot_log": [entry for entry in metadata.snapshot_log if entry.snapshot_id == here][-1:],
                "refs": {name: ref for name, ref in metadata.refs.items() if ref.snapshot_id == here},
            }
        known = {name: value for name, value in update.items() if name in type(metadata).model_fields}
        return write(self.store, metadata.model_copy(update=known), held.location)

    def _snapshot(self, held: Held, snapshot: Snapshot, replaced: Mapping[str, DataFile | None]) -> Snapshot | None:
        found: list[ManifestFile] = []
        for listed in held.current:
            found += self._manifests(held.metadata, listed, replaced)
        if [manifest.manifest_path for manifest in found] == [at.manifest.manifest_path for at in held.current]:
            return snapshot
        if not found:
            return None
        pen = Pen(self.store, held.metadata, snapshot.snapshot_id)
        written = pen.manifest_list(found, snapshot.sequence_number or 0, snapshot.parent_snapshot_id)
        summary = _summary(held, snapshot, replaced)
        return snapshot.model_copy(update={"manifest_list": written, "summary": summary})

    def _manifests(
        self, metadata: TableMetadata, listed: Listed, replaced: Mapping[str, DataFile | None]
    ) -> list[ManifestFile]:
        """Return manifests in the place of one: itself where nothing in it changes."""
        here = [path for path in [*(entry.path for entry in listed.live), *listed.removed] if path in replaced]
        if not here:
            return [listed.manifest]
        names = tuple(sorted((path, _path(replaced[path])) for path in here))
        key = (listed.manifest.manifest_path, names)
        if key not in self._made:
            kept = _kept(listed, replaced)
            pen = Pen(self.store, metadata, listed.manifest.added_snapshot_id or 0)
            made = pen.existing(kept) if kept else []
            for manifest in made:  # it is as old as the one that it stands for
                manifest.sequence_number = listed.manifest.sequence_number or 0
            self._made[key] = made
        return self._made[key]


def rewrite_version(store: "Store", location: str, replaced: Mapping[str, DataFile | None]) -> str:
    """Stage a version that differs from the one at `location` by its files, and return where it is."""
    return Rewriter(store).rewritten(Library(store).held(location), replaced)


def _path(file: DataFile | None) -> str | None:
    return file.file_path if file is not None else None


def _kept(listed: Listed, replaced: Mapping[str, DataFile | None]) -> list[Entry]:
    kept = []
    for entry in listed.live:
        file = replaced.get(entry.path, entry.file)
        if file is not None:
            kept.append(replace(entry, file=file))
    return kept


def _summary(held: Held, snapshot: Snapshot, replaced: Mapping[str, DataFile | None]) -> Summary | None:
    if snapshot.summary is None:
        return None
    files = [entry.file for listed in held.current for entry in _kept(listed, replaced)]

    def rows(content: DataFileContent) -> int:
        return sum(file.record_count for file in files if file.content == content)

    totals = {
        "total-data-files": sum(1 for file in files if file.content == DataFileContent.DATA),
        "total-delete-files": sum(1 for file in files if file.content != DataFileContent.DATA),
        "total-records": rows(DataFileContent.DATA),
        "total-files-size": sum(file.file_size_in_bytes for file in files),
        "total-position-deletes": rows(DataFileContent.POSITION_DELETES),
        "total-equality-deletes": rows(DataFileContent.EQUALITY_DELETES),
    }
    told = snapshot.summary.additional_properties
    kept = {name: value for name, value in told.items() if not name.startswith(_COUNTED)}
    return Summary(snapshot.summary.operation, **kept, **{name: str(count) for name, count in totals.items()})
