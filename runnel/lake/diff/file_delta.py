"""The difference between two versions of a table, as files: which came, which went.

A set difference over (data file, deletes that apply to it), whatever the history between the two. Manifests that both
share are not read, so the cost follows the change.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent, ManifestFile

from runnel.lake.iceberg.manifests import Entry, entries_in, manifests
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.scan.scan_sql import check, named_in, partition_of, spelled

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


def rows_apart(store: "Store", before: str | None, after: str | None, found: Delta) -> tuple[tuple[Entry, ...], ...]:
    """Return the files of each version, older first, that hold every row in which the two differ.

    To the data files that came or went are added those in which a delete that came or went removes rows, and on each
    side every delete of their partitions. A row that both sides have is in both, so that it cancels out.
    """
    for location, differing in ((before, found.removed), (after, found.added)):
        if location is not None:
            check(load(store, location), differing)
    named = _named(found)
    return (_side(store, before, found.removed, named), _side(store, after, found.added, named))


def _named(found: Delta) -> frozenset[str]:
    """Return the data files that the deletes of a difference remove rows from."""
    from runnel.lake.scan.duckdb_connection import connect, told

    deletes = [entry for entry in (*found.added, *found.removed) if not entry.is_data]
    if not deletes:
        return frozenset()
    with told(), connect() as connection:
        return frozenset(row[0] for row in connection.execute(named_in(deletes)).fetchall())


def _side(store: "Store", location: str | None, differing: Iterable[Entry], named: frozenset[str]) -> tuple[Entry, ...]:
    if location is None:
        return ()
    metadata = load(store, location)
    chosen = {entry.path: entry for entry in differing}
    partitions = {partition_of(entry) for entry in chosen.values()}
    listed = manifests(store, metadata)
    if named:
        for manifest in listed:
            if manifest.content == ManifestContent.DATA:
                touched = [entry for entry in entries_in(store, manifest) if spelled(entry.path) in named]
                chosen.update((entry.path, entry) for entry in touched)
        partitions |= {partition_of(entry) for entry in chosen.values()}
    for manifest in listed:
        if manifest.content == ManifestContent.DELETES:
            deletes = [entry for entry in entries_in(store, manifest) if partition_of(entry) in partitions]
            chosen.update((entry.path, entry) for entry in deletes)
    return tuple(chosen.values())


def _manifests(store: "Store", location: str | None) -> dict[str, ManifestFile]:
    if location is None:
        return {}
    return {manifest.manifest_path: manifest for manifest in manifests(store, load(store, location))}
