"""Stage a new version of a table from added and removed files.

All Iceberg snapshots that Runnel itself writes are made here: appends, overwrites, merges, compactions. Files may
belong to any partition spec of the table; one manifest is written per spec.
"""

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate

from runnel.errors import CorruptData, Mistake
from runnel.lake.iceberg.manifests import (
    FileEntry,
    SnapshotManifestWriter,
    has_equality_deletes,
    merge_small_manifests,
    read_manifest_entries,
    read_manifests,
)
from runnel.lake.iceberg.table_metadata import check_writable, load_metadata, stage_update
from runnel.phase_timer import measure_phase

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class VersionEdit:
    """What a new version adds and removes. `removed` are entries of the base version, data or deletes."""

    added: Sequence[DataFile] = ()
    removed: Sequence[FileEntry] = ()
    reused: Sequence[FileEntry] = ()  # files of another version of the table; they keep their sequence numbers
    is_rewrite: bool = False  # the rows stay the same: a compaction
    sequence: int | None = None  # data sequence number of rewritten rows
    summary: dict[str, str] = field(default_factory=dict)
    updates: tuple[TableUpdate, ...] = ()  # schema, spec or property changes in the same version
    rewrites_manifests: bool = False  # rewrite all manifests into as few as possible

    @property
    def operation(self) -> Operation:
        """Return the operation as Iceberg names it."""
        if self.is_rewrite:
            return Operation.REPLACE
        if not self.removed:
            deletes = any(file.content != DataFileContent.DATA for file in self.files)
            return Operation.OVERWRITE if deletes else Operation.APPEND
        return Operation.OVERWRITE if self.files else Operation.DELETE

    @property
    def files(self) -> list[DataFile]:
        """Return every file that the version gains."""
        return [*self.added, *(entry.file for entry in self.reused)]


@measure_phase("write")
def stage_version(store: "Store", base_location: str, edit: VersionEdit) -> str:
    """Write a version that differs from `base_location` by `edit` and return its location; nothing points at it yet."""
    base = load_metadata(store, base_location)
    check_writable(base)
    if edit.updates:
        from pyiceberg.table.update import update_table_metadata

        base = update_table_metadata(base, edit.updates, metadata_location=base_location)
    snapshot_id = new_snapshot_id(base)
    manifest_writer = SnapshotManifestWriter(store, base, snapshot_id)
    manifest_files = manifest_writer.write_added(edit.added, edit.sequence) if edit.added else []
    manifest_files += (
        manifest_writer.write_from_other_version(edit.reused, base.next_sequence_number()) if edit.reused else []
    )
    if edit.rewrites_manifests:
        manifest_files += _rewrite_manifests(store, manifest_writer, read_manifests(store, base), edit.removed)
    else:
        manifest_files = merge_small_manifests(
            store,
            manifest_writer,
            manifest_files + _exclude_entries(store, manifest_writer, read_manifests(store, base), edit.removed),
        )
    sequence, parent = base.next_sequence_number(), base.current_snapshot()
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence,
        timestamp_ms=max(int(time.time() * 1000), base.last_updated_ms + 1),
        manifest_list=manifest_writer.write_list(manifest_files, sequence, parent.snapshot_id if parent else None),
        summary=_build_summary(edit, parent),
        schema_id=base.current_schema_id,
    )
    branch_ref = {"ref-name": MAIN_BRANCH, "snapshot-id": snapshot_id, "type": SnapshotRefType.BRANCH}
    updates = (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(branch_ref))
    return stage_update(store, base, base_location, updates)[0]


def new_snapshot_id(metadata: TableMetadata) -> int:
    """Return an unused snapshot id."""
    used = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    while (snapshot_id := secrets.randbits(62)) in used:
        pass
    return snapshot_id


def _exclude_entries(
    store: "Store",
    manifest_writer: SnapshotManifestWriter,
    manifest_files: Iterable[ManifestFile],
    removed: Sequence[FileEntry],
) -> list[ManifestFile]:
    """Return the base's manifests with removed files taken out; raise if a removed file is not listed."""
    remaining_paths = {entry.path for entry in removed}
    likely_manifests = {entry.manifest for entry in removed}
    new_manifests: list[ManifestFile] = []
    # Manifests that the removed entries were read from come first; usually no other has to be read.
    for manifest in sorted(manifest_files, key=lambda manifest: manifest.manifest_path not in likely_manifests):
        if not remaining_paths:
            new_manifests.append(manifest)
            continue
        live_entries = read_manifest_entries(store, manifest)
        removed_entries = [entry for entry in live_entries if entry.path in remaining_paths]
        if not removed_entries:
            new_manifests.append(manifest)
            continue
        new_manifests.extend(
            _rewrite_manifest(
                store,
                manifest_writer,
                manifest,
                [entry for entry in live_entries if entry.path not in remaining_paths],
                removed_entries,
            )
        )
        remaining_paths -= {entry.path for entry in removed_entries}
    if remaining_paths:
        raise _not_listed_error(remaining_paths)
    return new_manifests


def _rewrite_manifest(
    store: "Store",
    manifest_writer: SnapshotManifestWriter,
    manifest: ManifestFile,
    remaining_entries: Sequence[FileEntry],
    removed_entries: Sequence[FileEntry],
) -> list[ManifestFile]:
    if not has_equality_deletes(store, manifest):
        return manifest_writer.write_rewritten(remaining_entries, removed_entries)
    if remaining_entries:
        what = f"{manifest.manifest_path} lists deletes by value, which only another engine can rewrite"
        raise Mistake("TABLE_EQUALITY_DELETES", what, fix="rewrite the table's files with Spark, then repeat")
    return []  # no entry is left, so the manifest is not needed


def _rewrite_manifests(
    store: "Store",
    manifest_writer: SnapshotManifestWriter,
    manifest_files: Iterable[ManifestFile],
    removed: Sequence[FileEntry],
) -> list[ManifestFile]:
    """Return new manifests with all entries of the base except `removed`, sorted by partition."""
    live_entries = [entry for manifest in manifest_files for entry in read_manifest_entries(store, manifest)]
    removed_paths = {entry.path for entry in removed}
    removed_entries = [entry for entry in live_entries if entry.path in removed_paths]
    if removed_paths - {entry.path for entry in removed_entries}:
        raise _not_listed_error(removed_paths - {entry.path for entry in removed_entries})
    remaining_entries = [entry for entry in live_entries if entry.path not in removed_paths]
    return manifest_writer.write_rewritten(
        sorted(remaining_entries, key=lambda entry: (str(entry.file.partition), entry.sequence)), removed_entries
    )


def _not_listed_error(paths: set[str]) -> CorruptData:
    return CorruptData(
        "LAKE_FILE_NOT_LISTED", f"{sorted(paths)[0]} is not part of the version that it was to be removed from"
    )


def _build_summary(edit: VersionEdit, parent: Snapshot | None) -> Summary:
    added_counts, removed_counts = _count_files(edit.files), _count_files([entry.file for entry in edit.removed])
    parent_properties = parent.summary.additional_properties if parent and parent.summary else {}
    properties = {}
    for name, (added_key, removed_key) in _SUMMARY_KEYS.items():
        properties[f"total-{name}"] = str(
            max(int(parent_properties.get(f"total-{name}", 0)) + added_counts[name] - removed_counts[name], 0)
        )
        properties |= {added_key: str(added_counts[name])} if added_counts[name] else {}
        properties |= {removed_key: str(removed_counts[name])} if removed_counts[name] else {}
    return Summary(edit.operation, **{**properties, **edit.summary})


_SUMMARY_KEYS = {
    "data-files": ("added-data-files", "deleted-data-files"),
    "delete-files": ("added-delete-files", "removed-delete-files"),
    "records": ("added-records", "deleted-records"),
    "files-size": ("added-files-size", "removed-files-size"),
    "position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


def _count_files(files: Sequence[DataFile]) -> dict[str, int]:
    def count_rows(content: DataFileContent) -> int:
        return sum(file.record_count for file in files if file.content == content)

    data_file_count = sum(1 for file in files if file.content == DataFileContent.DATA)
    return {
        "data-files": data_file_count,
        "delete-files": len(files) - data_file_count,
        "records": count_rows(DataFileContent.DATA),
        "files-size": sum(file.file_size_in_bytes for file in files),
        "position-deletes": count_rows(DataFileContent.POSITION_DELETES),
        "equality-deletes": count_rows(DataFileContent.EQUALITY_DELETES),
    }
