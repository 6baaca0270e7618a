"""Compute the difference between two versions of a table as files: which were added, which were removed.

A set difference of their files, independent of the history between the two. Manifests that both versions share are
not read, so the cost depends on the change.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent, ManifestFile

from runnel.lake.iceberg.manifests import FileEntry, read_manifest_entries, read_manifests
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.scan_sql import build_deleted_files_sql, check_scannable, normalize_file_path, partition_of

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class FileDelta:
    """Data and delete files that only the newer version has (`added`), or only the older one (`removed`)."""

    added: tuple[FileEntry, ...]
    removed: tuple[FileEntry, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether both versions have the same files."""
        return not self.added and not self.removed

    @property
    def appends_only(self) -> bool:
        """Return whether rows were only added: no file was removed, and no delete file was added."""
        return not self.removed and all(entry.is_data for entry in self.added)


def compute_file_delta(store: "Store", before: str | None, after: str | None) -> FileDelta:
    """Return the difference between two versions; None stands for a table that does not exist."""
    old = _manifests_by_path(store, before)
    new = _manifests_by_path(store, after)
    shared = old.keys() & new.keys()
    removed = {entry.path: entry for path in old.keys() - shared for entry in read_manifest_entries(store, old[path])}
    added = {entry.path: entry for path in new.keys() - shared for entry in read_manifest_entries(store, new[path])}
    in_both = removed.keys() & added.keys()
    return FileDelta(
        tuple(entry for path, entry in added.items() if path not in in_both),
        tuple(entry for path, entry in removed.items() if path not in in_both),
    )


def find_differing_files(
    store: "Store", before: str | None, after: str | None, file_delta: FileDelta
) -> tuple[tuple[FileEntry, ...], ...]:
    """Return for each version, older first, the files that contain every row in which the two differ.

    These are the data files that were added or removed, the data files that an added or removed delete file refers
    to, and in each version all delete files of their partitions. A row that both versions have is in both results, so
    that it cancels out.
    """
    for location, differing in ((before, file_delta.removed), (after, file_delta.added)):
        if location is not None:
            check_scannable(load_metadata(store, location), differing)
    delete_targets = _read_delete_targets(file_delta)
    return (
        _collect_files(store, before, file_delta.removed, delete_targets),
        _collect_files(store, after, file_delta.added, delete_targets),
    )


def _read_delete_targets(file_delta: FileDelta) -> frozenset[str]:
    """Return the data files that the delete files of a difference remove rows from."""
    from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors

    deletes = [entry for entry in (*file_delta.added, *file_delta.removed) if not entry.is_data]
    if not deletes:
        return frozenset()
    with translate_duckdb_errors(), connect_duckdb() as connection:
        return frozenset(row[0] for row in connection.execute(build_deleted_files_sql(deletes)).fetchall())


def _collect_files(
    store: "Store", location: str | None, differing: Iterable[FileEntry], delete_targets: frozenset[str]
) -> tuple[FileEntry, ...]:
    if location is None:
        return ()
    metadata = load_metadata(store, location)
    chosen = {entry.path: entry for entry in differing}
    partitions = {partition_of(entry) for entry in chosen.values()}
    manifest_files = read_manifests(store, metadata)
    if delete_targets:
        for manifest in manifest_files:
            if manifest.content == ManifestContent.DATA:
                targeted = [
                    entry
                    for entry in read_manifest_entries(store, manifest)
                    if normalize_file_path(entry.path) in delete_targets
                ]
                chosen.update((entry.path, entry) for entry in targeted)
        partitions |= {partition_of(entry) for entry in chosen.values()}
    for manifest in manifest_files:
        if manifest.content == ManifestContent.DELETES:
            deletes = [entry for entry in read_manifest_entries(store, manifest) if partition_of(entry) in partitions]
            chosen.update((entry.path, entry) for entry in deletes)
    return tuple(chosen.values())


def _manifests_by_path(store: "Store", location: str | None) -> dict[str, ManifestFile]:
    if location is None:
        return {}
    return {manifest.manifest_path: manifest for manifest in read_manifests(store, load_metadata(store, location))}
