"""Mark every file that some version of the lake needs.

Reads metadata, manifest lists and each manifest once, and collects a set of paths. Stops at the first file that can't
be read: the files that it names are unknown, so nothing may be deleted. Never writes.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from runnel.errors import CorruptData
from runnel.lake.files import blobs
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.upkeep.manifest_reader import (
    find_readable_snapshots,
    list_statistics_files,
    read_manifest_files,
    read_manifest_list,
)
from runnel.model.progress import Progress

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from runnel.lake.store import Store
    from runnel.lake.upkeep.gc.retained_commits import CatalogRow


def normalize_path(location: str) -> str:
    """Return the normalized path by which files are compared.

    >>> normalize_path("file:///a//b"), normalize_path("s3a://bucket/a")
    ('/a/b', 's3://bucket/a')
    """
    path = normalize_location(location)
    return "s3://" + path.partition("://")[2] if path.startswith(("s3a://", "s3n://")) else path


class MarkedFiles:
    """The files needed by the versions that were marked so far."""

    def __init__(self, store: "Store") -> None:
        self.store = store
        self.files: set[str] = set()
        self._seen_blobs: set[str] = set()

    def mark_versions(self, locations: Iterable[str], report_progress: Progress | None = None) -> None:
        """Mark every version, each once."""
        unique_locations = list(dict.fromkeys(locations))
        for done, location in enumerate(unique_locations, 1):
            self.mark_version(location)
            if report_progress:
                report_progress("mark", done, len(unique_locations))

    def mark_version(self, location: str) -> None:
        """Mark the files that are needed to read a version."""
        if not self._mark_file(location):
            return
        metadata = load_metadata(self.store, location)
        snapshots = find_readable_snapshots(metadata)
        for path in list_statistics_files(metadata, snapshots):
            self._mark_file(path)
        for snapshot in snapshots:
            if self._mark_file(snapshot.manifest_list):
                self._mark_manifests(snapshot)
        self.files.update(map(normalize_path, blobs.find_referenced(self.store, metadata, self._seen_blobs)))

    def mark_readable(self, locations: Iterable[str]) -> list[str]:
        """Mark versions that need not be readable, and return those that can't be read."""
        unreadable = []
        for location in locations:
            try:
                self.mark_version(location)
            except CorruptData:
                unreadable.append(location)
        return unreadable

    def mark_catalog_rows(self, rows: Iterable["CatalogRow"]) -> None:
        """Mark the versions that the rows of Iceberg's catalog point at; other engines may have written them."""
        for row in rows:
            if not row.is_table:
                self._mark_file(row.location)
                continue
            try:
                self.mark_version(row.location)
                if row.is_append_log:
                    self.mark_older_snapshots(row.location)
            except CorruptData:
                # A row that belongs to no branch may point at a deleted file; a branch must be readable.
                if row.is_ours or self.store.io.new_input(row.location).exists():
                    raise

    def mark_older_snapshots(self, location: str) -> None:
        """Mark the manifests of an append log's older snapshots: a stream reads one snapshot after the other.

        Files that were not read yet are in the current snapshot too. Missing manifests were read long ago.
        """
        for snapshot in load_metadata(self.store, location).snapshots:
            with suppress(CorruptData):
                self.files.update(
                    normalize_path(manifest.manifest_path) for manifest in read_manifest_list(self.store, snapshot)
                )
                self._mark_file(snapshot.manifest_list)

    def is_needed(self, path: str) -> bool:
        """Return whether a file of the warehouse is needed; Hadoop's checksum file is needed with its data file."""
        if path in self.files:
            return True
        folder, _, name = path.rpartition("/")
        return name.startswith(".") and name.endswith(".crc") and f"{folder}/{name[1:-4]}" in self.files

    def _mark_manifests(self, snapshot: "Snapshot") -> None:
        for manifest in read_manifest_list(self.store, snapshot):
            if self._mark_file(manifest.manifest_path):
                self.files.update(normalize_path(file.path) for file in read_manifest_files(self.store, manifest))

    def _mark_file(self, location: str) -> bool:
        """Mark a file and return whether it was unmarked."""
        path = normalize_path(location)
        if path in self.files:
            return False
        self.files.add(path)
        return True
