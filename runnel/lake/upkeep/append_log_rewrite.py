"""Rewrite the tape of a stream so that it lists other files, and Spark goes on reading where it was.

Spark knows by a snapshot's id, and by how many of the files that the snapshot added, how far a stream has read. So
every snapshot stays, with its id and its summary, and each file that a snapshot adds has another one in its place, even
if no row is left. Nothing points at a rewritten tape until the caller says so.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile

from runnel.errors import Broken
from runnel.lake.iceberg.file_io import missing
from runnel.lake.iceberg.manifests import Pen, listed_in
from runnel.lake.iceberg.table_metadata import write

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from runnel.lake.store import Store
    from runnel.lake.upkeep.erase.version_rewriter import Held


class TapeRewriter:
    """Writes one tape anew; a manifest that several snapshots share is written once."""

    def __init__(self, store: "Store", held: "Held", replaced: Mapping[str, DataFile | None]) -> None:
        self._store = store
        self._held = held
        self._replaced = replaced
        self._manifests: dict[str, list[ManifestFile]] = {}

    def rewritten(self) -> str:
        """Return the tape with other files in the place of some; None takes out a file that was read long ago."""
        metadata = self._held.metadata
        update: dict[str, object] = {"metadata_log": [], "statistics": [], "partition_statistics": []}
        update["snapshots"] = [self._snapshot(snapshot) for snapshot in metadata.snapshots]
        known = {name: value for name, value in update.items() if name in type(metadata).model_fields}
        return write(self._store, metadata.model_copy(update=known), self._held.location)

    def _snapshot(self, snapshot: "Snapshot") -> "Snapshot":
        current = self._held.metadata.current_snapshot_id
        try:
            listed = listed_in(self._store, snapshot.manifest_list)
            found = [made for manifest in listed for made in self._rewritten_manifest(manifest)]
        except Broken:
            if snapshot.snapshot_id == current:
                raise
            return snapshot  # it was read long ago, and swept
        if [made.manifest_path for made in found] == [manifest.manifest_path for manifest in listed]:
            return snapshot
        pen = Pen(self._store, self._held.metadata, snapshot.snapshot_id)
        written = pen.manifest_list(found, snapshot.sequence_number or 0, snapshot.parent_snapshot_id)
        return snapshot.model_copy(update={"manifest_list": written})

    def _rewritten_manifest(self, manifest: ManifestFile) -> list[ManifestFile]:
        if manifest.manifest_path not in self._manifests:
            self._manifests[manifest.manifest_path] = self._written(manifest)
        return self._manifests[manifest.manifest_path]

    def _written(self, manifest: ManifestFile) -> list[ManifestFile]:
        try:
            entries = manifest.fetch_manifest_entry(self._store.io, discard_deleted=False)
        except FileNotFoundError as error:
            raise missing(manifest.manifest_path) from error
        if not any(entry.data_file.file_path in self._replaced for entry in entries):
            return [manifest]
        kept = [entry for entry in map(self._entry, entries) if entry is not None]
        made = Pen(self._store, self._held.metadata, manifest.added_snapshot_id or 0).carried(kept) if kept else []
        for written in made:  # it is as old as the one that it stands for
            written.sequence_number = manifest.sequence_number or 0
        return made

    def _entry(self, entry: ManifestEntry) -> ManifestEntry | None:
        """Return an entry with the file that stands for its own; None where nothing is to tell of it any more."""
        path = entry.data_file.file_path
        file = self._replaced.get(path, entry.data_file)
        if file is None or (path in self._replaced and entry.status == ManifestEntryStatus.DELETED):
            return None
        return ManifestEntry.from_args(
            status=entry.status,
            snapshot_id=entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=file,
        )
