"""Rewrite the append log of a stream so that it lists other files, and Spark continues reading where it was.

Spark stores how far a stream has read as a snapshot's id and a number of files that the snapshot added. So every
snapshot stays, with its id and its summary, and each file that a snapshot adds is replaced by another file, even if no
row is left. Nothing points at a rewritten append log until the caller publishes it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile

from runnel.errors import CorruptData
from runnel.lake.iceberg.file_io import missing_file_error
from runnel.lake.iceberg.manifests import SnapshotManifestWriter, read_listed_manifests
from runnel.lake.iceberg.table_metadata import write_metadata

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from runnel.lake.store import Store
    from runnel.lake.upkeep.erase.version_rewriter import LoadedVersion


class AppendLogRewriter:
    """Rewrites one append log; a manifest that several snapshots share is rewritten once."""

    def __init__(self, store: "Store", version: "LoadedVersion", replacements: Mapping[str, DataFile | None]) -> None:
        self._store = store
        self._version = version
        self._replacements = replacements
        self._manifests: dict[str, list[ManifestFile]] = {}

    def rewrite(self) -> str:
        """Write the append log with the replacements, and return it; None removes a file that was read long ago."""
        metadata = self._version.metadata
        update: dict[str, object] = {"metadata_log": [], "statistics": [], "partition_statistics": []}
        update["snapshots"] = [self._rewrite_snapshot(snapshot) for snapshot in metadata.snapshots]
        supported_update = {name: value for name, value in update.items() if name in type(metadata).model_fields}
        return write_metadata(self._store, metadata.model_copy(update=supported_update), self._version.location)

    def _rewrite_snapshot(self, snapshot: "Snapshot") -> "Snapshot":
        current_snapshot_id = self._version.metadata.current_snapshot_id
        try:
            old_manifests = read_listed_manifests(self._store, snapshot.manifest_list)
            new_manifests = [
                new_manifest for manifest in old_manifests for new_manifest in self._rewrite_manifest_once(manifest)
            ]
        except CorruptData:
            if snapshot.snapshot_id == current_snapshot_id:
                raise
            return snapshot  # it was read long ago, and gc has deleted it
        if [new_manifest.manifest_path for new_manifest in new_manifests] == [
            manifest.manifest_path for manifest in old_manifests
        ]:
            return snapshot
        pen = SnapshotManifestWriter(self._store, self._version.metadata, snapshot.snapshot_id)
        manifest_list = pen.write_list(new_manifests, snapshot.sequence_number or 0, snapshot.parent_snapshot_id)
        return snapshot.model_copy(update={"manifest_list": manifest_list})

    def _rewrite_manifest_once(self, manifest: ManifestFile) -> list[ManifestFile]:
        if manifest.manifest_path not in self._manifests:
            self._manifests[manifest.manifest_path] = self._rewrite_manifest(manifest)
        return self._manifests[manifest.manifest_path]

    def _rewrite_manifest(self, manifest: ManifestFile) -> list[ManifestFile]:
        try:
            entries = manifest.fetch_manifest_entry(self._store.io, discard_deleted=False)
        except FileNotFoundError as error:
            raise missing_file_error(manifest.manifest_path) from error
        if not any(entry.data_file.file_path in self._replacements for entry in entries):
            return [manifest]
        retained_entries = [entry for entry in map(self._replace_entry, entries) if entry is not None]
        new_manifests = (
            SnapshotManifestWriter(self._store, self._version.metadata, manifest.added_snapshot_id or 0).write_entries(
                retained_entries
            )
            if retained_entries
            else []
        )
        for new_manifest in new_manifests:  # it keeps the age of the manifest that it replaces
            new_manifest.sequence_number = manifest.sequence_number or 0
        return new_manifests

    def _replace_entry(self, entry: ManifestEntry) -> ManifestEntry | None:
        """Return an entry with the replacement of its file; None if the entry has to be removed."""
        path = entry.data_file.file_path
        file = self._replacements.get(path, entry.data_file)
        if file is None or (path in self._replacements and entry.status == ManifestEntryStatus.DELETED):
            return None
        return ManifestEntry.from_args(
            status=entry.status,
            snapshot_id=entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=file,
        )
