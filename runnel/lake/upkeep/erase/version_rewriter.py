"""Rewrite versions of a table so that they list other files and are otherwise unchanged.

Snapshot ids, sequence numbers and the table's identity stay. A rewritten version lists only its current snapshot, and
its manifests only live files: entries of removed files would still reveal the bounds of their values. Nothing points at
a rewritten version until the caller publishes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, Summary

from runnel.errors import CorruptData
from runnel.lake.iceberg.file_io import missing_file_error
from runnel.lake.iceberg.manifests import (
    FileEntry,
    SnapshotManifestWriter,
    read_listed_manifests,
    read_manifest_entries,
)
from runnel.lake.iceberg.table_metadata import load_metadata, write_metadata

if TYPE_CHECKING:
    from runnel.lake.store import Store

# Entries of a summary that depend on single files and values; the totals are counted again.
_COUNTED_PREFIXES = (
    "added-",
    "deleted-",
    "removed-",
    "partitions.",
    "changed-partition-count",
    "total-",
    "partition-summaries",
)


@dataclass(frozen=True)
class ManifestListing:
    """A manifest with its live entries, and the paths of the files that it records as removed."""

    manifest: ManifestFile
    live_entries: tuple[FileEntry, ...]
    removed_paths: frozenset[str]


@dataclass(frozen=True)
class LoadedVersion:
    """A version with its manifests. `older_manifests` are the existing ones of other snapshots that it still lists."""

    location: str
    metadata: TableMetadata
    current_manifests: tuple[ManifestListing, ...]
    older_manifests: tuple[ManifestListing, ...]

    def find_manifest_lists(self) -> set[str]:
        """Return the manifest lists of all its snapshots."""
        return {snapshot.manifest_list for snapshot in self.metadata.snapshots}


class VersionReader:
    """Reads versions with all their manifests; a manifest that many versions share is read once."""

    def __init__(self, store: "Store") -> None:
        self.store = store
        self._listings: dict[str, ManifestListing] = {}

    def read_version(self, location: str) -> LoadedVersion:
        """Return a version with its manifests, or raise CorruptData if a current manifest is missing."""
        metadata = load_metadata(self.store, location)
        snapshot = metadata.current_snapshot()
        current = self._read_listings(snapshot) if snapshot else ()
        current_paths = {listing.manifest.manifest_path for listing in current}
        older: dict[str, ManifestListing] = {}
        for other in metadata.snapshots:
            if snapshot is None or other.snapshot_id != snapshot.snapshot_id:
                for listing in self._read_if_present(other):
                    if listing.manifest.manifest_path not in current_paths:
                        older[listing.manifest.manifest_path] = listing
        return LoadedVersion(location, metadata, current, tuple(older.values()))

    def _read_if_present(self, snapshot: Snapshot) -> tuple[ManifestListing, ...]:
        try:
            return self._read_listings(snapshot)
        except CorruptData:  # no version needs it any more, so gc may have deleted it
            return ()

    def _read_listings(self, snapshot: Snapshot) -> tuple[ManifestListing, ...]:
        return tuple(
            self._read_listing(manifest) for manifest in read_listed_manifests(self.store, snapshot.manifest_list)
        )

    def _read_listing(self, manifest: ManifestFile) -> ManifestListing:
        path = manifest.manifest_path
        if path not in self._listings:
            live_entries = read_manifest_entries(self.store, manifest)
            removed_paths = self._read_removed_paths(manifest) if manifest.deleted_files_count != 0 else frozenset()
            self._listings[path] = ManifestListing(manifest, live_entries, removed_paths)
        return self._listings[path]

    def _read_removed_paths(self, manifest: ManifestFile) -> frozenset[str]:
        try:
            entries = manifest.fetch_manifest_entry(self.store.io, discard_deleted=False)
        except FileNotFoundError as error:
            raise missing_file_error(manifest.manifest_path) from error
        removed_files = (entry.data_file for entry in entries if entry.status == ManifestEntryStatus.DELETED)
        return frozenset(file.file_path for file in removed_files)


class VersionRewriter:
    """Rewrites versions; a manifest that many versions share is rewritten once."""

    def __init__(self, store: "Store") -> None:
        self.store = store
        self._manifests_by_key: dict[tuple[str, tuple[tuple[str, str | None], ...]], list[ManifestFile]] = {}

    def rewrite(self, version: LoadedVersion, replacements: Mapping[str, DataFile | None]) -> str:
        """Write a version in which `replacements` take the place of files, and return it; None removes a file."""
        metadata, snapshot = version.metadata, version.metadata.current_snapshot()
        update: dict[str, object] = {"metadata_log": [], "statistics": [], "partition_statistics": []}
        new_snapshot = self._rewrite_snapshot(version, snapshot, replacements) if snapshot else None
        if new_snapshot is None:  # there is no file to list, and some readers reject an empty manifest list
            update |= {"current_snapshot_id": None, "snapshots": [], "snapshot_log": [], "refs": {}}
        else:
            snapshot_id = new_snapshot.snapshot_id
            update |= {
                "snapshots": [new_snapshot],
                "snapshot_log": [entry for entry in metadata.snapshot_log if entry.snapshot_id == snapshot_id][-1:],
                "refs": {name: ref for name, ref in metadata.refs.items() if ref.snapshot_id == snapshot_id},
            }
        supported_update = {name: value for name, value in update.items() if name in type(metadata).model_fields}
        return write_metadata(self.store, metadata.model_copy(update=supported_update), version.location)

    def _rewrite_snapshot(
        self, version: LoadedVersion, snapshot: Snapshot, replacements: Mapping[str, DataFile | None]
    ) -> Snapshot | None:
        manifests: list[ManifestFile] = []
        for old_listing in version.current_manifests:
            manifests += self._rewrite_manifest(version.metadata, old_listing, replacements)
        if [manifest.manifest_path for manifest in manifests] == [
            listing.manifest.manifest_path for listing in version.current_manifests
        ]:
            return snapshot
        if not manifests:
            return None
        pen = SnapshotManifestWriter(self.store, version.metadata, snapshot.snapshot_id)
        manifest_list = pen.write_list(manifests, snapshot.sequence_number or 0, snapshot.parent_snapshot_id)
        summary = _build_summary(version, snapshot, replacements)
        return snapshot.model_copy(update={"manifest_list": manifest_list, "summary": summary})

    def _rewrite_manifest(
        self, metadata: TableMetadata, listing: ManifestListing, replacements: Mapping[str, DataFile | None]
    ) -> list[ManifestFile]:
        """Return the manifests that replace a manifest: the manifest itself if nothing in it changes."""
        changed_paths = [
            path
            for path in [*(entry.path for entry in listing.live_entries), *listing.removed_paths]
            if path in replacements
        ]
        if not changed_paths:
            return [listing.manifest]
        replacement_paths = tuple(sorted((path, _get_path(replacements[path])) for path in changed_paths))
        key = (listing.manifest.manifest_path, replacement_paths)
        if key not in self._manifests_by_key:
            entries = _replace_entries(listing, replacements)
            pen = SnapshotManifestWriter(self.store, metadata, listing.manifest.added_snapshot_id or 0)
            new_manifests = pen.write_existing(entries) if entries else []
            for manifest in new_manifests:  # it keeps the age of the manifest that it replaces
                manifest.sequence_number = listing.manifest.sequence_number or 0
            self._manifests_by_key[key] = new_manifests
        return self._manifests_by_key[key]


def _get_path(file: DataFile | None) -> str | None:
    return file.file_path if file is not None else None


def _replace_entries(listing: ManifestListing, replacements: Mapping[str, DataFile | None]) -> list[FileEntry]:
    entries = []
    for entry in listing.live_entries:
        file = replacements.get(entry.path, entry.file)
        if file is not None:
            entries.append(replace(entry, file=file))
    return entries


def _build_summary(
    version: LoadedVersion, snapshot: Snapshot, replacements: Mapping[str, DataFile | None]
) -> Summary | None:
    if snapshot.summary is None:
        return None
    files = [entry.file for listing in version.current_manifests for entry in _replace_entries(listing, replacements)]

    def count_rows(content: DataFileContent) -> int:
        return sum(file.record_count for file in files if file.content == content)

    totals = {
        "total-data-files": sum(1 for file in files if file.content == DataFileContent.DATA),
        "total-delete-files": sum(1 for file in files if file.content != DataFileContent.DATA),
        "total-records": count_rows(DataFileContent.DATA),
        "total-files-size": sum(file.file_size_in_bytes for file in files),
        "total-position-deletes": count_rows(DataFileContent.POSITION_DELETES),
        "total-equality-deletes": count_rows(DataFileContent.EQUALITY_DELETES),
    }
    old_properties = snapshot.summary.additional_properties
    retained_properties = {
        name: value for name, value in old_properties.items() if not name.startswith(_COUNTED_PREFIXES)
    }
    return Summary(
        snapshot.summary.operation, **retained_properties, **{name: str(count) for name, count in totals.items()}
    )
