"""The difference between two versions of a table, as files: which came, which went.

A set difference over (data file, deletes that apply to it), whatever the history between the two. Manifests that both
share are not read, so the cost follows the change.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata

from runnel.lake.manifests import Entry, entries_in, manifests
from runnel.lake.tables import load

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class Delta:
    """Files that only the newer version has, and files that only the older one has, data and deletes."""

    added: tuple[Entry, ...]
    removed: tuple[Entry, ...]

    @property
    def is_empty(self) -> bool:
        """Tell whether both versions have the same files."""
        return not self.added and not self.removed

    @property
    def appends_only(self) -> bool:
        """Tell whether rows were only added: no file went, and no delete came."""
        return not self.removed and all(entry.is_data for entry in self.added)


def delta(store: "Store", before: str | None, after: str | None) -> Delta:
    """Return the difference between two versions; None is a table that does not exist."""
    old = _manifests(store, before)
    new = _manifests(store, after)
    shared = old.keys() & new.keys()
    gone = {entry.path: entry for path in old.keys() - shared for entry in entries_in(store, old[path])}
    came = {entry.path: entry for path in new.keys() - shared for entry in entries_in(store, new[path])}
    both = gone.keys() & came.keys()
    return Delta(
        tuple(entry for path, entry in came.items() if path not in both),
        tuple(entry for path, entry in gone.items() if path not in both),
    )


def with_data(store: "Store", metadata: TableMetadata, found: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries completed so that rows can be compared: data files that the deletes among `found` touch.

    For every delete file the data files of its partition are added, and every delete of those partitions.
    """
    chosen = {entry.path: entry for entry in found}
    partitions = {(entry.file.spec_id, entry.file.partition) for entry in chosen.values()}
    touched = {(e.file.spec_id, e.file.partition) for e in chosen.values() if not e.is_data}
    for manifest in manifests(store, metadata):
        for entry in entries_in(store, manifest):
            key = (entry.file.spec_id, entry.file.partition)
            if key in touched or (not entry.is_data and key in partitions):
                chosen.setdefault(entry.path, entry)
    return tuple(chosen.values())


def _manifests(store: "Store", location: str | None) -> dict[str, ManifestFile]:
    if location is None:
        return {}
    return {manifest.manifest_path: manifest for manifest in manifests(store, load(store, location))}
