"""Mark: find every file that some version of the lake needs.

Reads metadata, manifest lists and each manifest once, and keeps a set of paths. Stops at the first file that can't be
read: what it would have named is unknown, so nothing may be deleted. Never writes.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from runnel.errors import Broken
from runnel.lake.files import blobs
from runnel.lake.iceberg.file_io import plain
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.upkeep.manifest_reader import files_in, manifests_in, promised_snapshots, statistics_of

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from runnel.lake.store import Store
    from runnel.lake.upkeep.gc.retained_commits import Registered

Progress = Callable[[str, int, int | None], None]


def key(location: str) -> str:
    """Return the one spelling by which files are compared.

    >>> key("file:///a//b"), key("s3a://bucket/a")
    ('/a/b', 's3://bucket/a')
    """
    found = plain(location)
    return "s3://" + found.partition("://")[2] if found.startswith(("s3a://", "s3n://")) else found


class Mark:
    """The files that the versions marked so far need."""

    def __init__(self, store: "Store") -> None:
        self.store = store
        self.files: set[str] = set()
        self._blobs_seen: set[str] = set()

    def versions(self, locations: Iterable[str], progress: Progress | None = None) -> None:
        """Mark every version, each once."""
        wanted = list(dict.fromkeys(locations))
        for done, location in enumerate(wanted, 1):
            self.version(location)
            if progress:
                progress("mark", done, len(wanted))

    def version(self, location: str) -> None:
        """Mark what is needed to read a version."""
        if not self._new(location):
            return
        metadata = load(self.store, location)
        snapshots = promised_snapshots(metadata)
        for path in statistics_of(metadata, snapshots):
            self._new(path)
        for snapshot in snapshots:
            if self._new(snapshot.manifest_list):
                self._manifests(snapshot)
        self.files.update(map(key, blobs.referenced(self.store, metadata, self._blobs_seen)))

    def readable(self, locations: Iterable[str]) -> list[str]:
        """Mark versions that are kept for convenience, and return those that can't be read: they are lost anyway."""
        lost = []
        for location in locations:
            try:
                self.version(location)
            except Broken:
                lost.append(location)
        return lost

    def registered(self, rows: Iterable["Registered"]) -> None:
        """Mark what the rows of Iceberg's catalog point at, which other engines may have put there."""
        for row in rows:
            if not row.is_table:
                self._new(row.location)
                continue
            try:
                self.version(row.location)
                if row.is_tape:
                    self.older_snapshots(row.location)
            except Broken:
                # A name that is no branch may be left over with nothing behind it; a branch must be readable.
                if row.is_ours or self.store.io.new_input(row.location).exists():
                    raise

    def older_snapshots(self, location: str) -> None:
        """Mark what lists the files of a tape's older snapshots: a stream reads one snapshot after the other.

        Files that were not read yet are in the current one too. What is gone was read long ago.
        """
        for snapshot in load(self.store, location).snapshots:
            with suppress(Broken):
                self.files.update(key(manifest.manifest_path) for manifest in manifests_in(self.store, snapshot))
                self._new(snapshot.manifest_list)

    def needs(self, path: str) -> bool:
        """Tell whether a file of the warehouse is needed; the checksum that Hadoop puts beside one goes with it."""
        if path in self.files:
            return True
        folder, _, name = path.rpartition("/")
        return name.startswith(".") and name.endswith(".crc") and f"{folder}/{name[1:-4]}" in self.files

    def _manifests(self, snapshot: "Snapshot") -> None:
        for manifest in manifests_in(self.store, snapshot):
            if self._new(manifest.manifest_path):
                self.files.update(key(file.path) for file in files_in(self.store, manifest))

    def _new(self, location: str) -> bool:
        """Mark a file and tell whether it was unmarked."""
        found = key(location)
        if found in self.files:
            return False
        self.files.add(found)
        return True
