"""Publish a change of files to a branch: add new rows and remove old rows of the same paths, by copy-on-write.

Only data files that contain one of the paths are rewritten. Writers of different paths don't disturb each other; two
writers of one path conflict.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.errors import Conflict, join_names
from runnel.lake import failpoints
from runnel.lake.files.file_rows import (
    LiveFile,
    PathRangeTest,
    column_values,
    find_changed_paths,
    list_live_files,
    open_live_file,
    scan_rows,
)
from runnel.lake.files.file_table import find_current_version, load_file_table
from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.publish import CommitDraft, publish_with_retry
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


@dataclass(frozen=True)
class FileChangeSet:
    """What a write changes in a file table.

    `base` is the version that it was planned on; None if the table is new, and then `created` is its staged, empty
    version. `checksums` has the sha256 that each path is to get, or None to remove it; `changed_paths` are the paths
    among them whose rows change, sorted; `files` are the data files with their new rows.
    """

    base: TableVersion | None
    checksums: Mapping[str, str | None]
    changed_paths: Sequence[str]
    files: Sequence[DataFile] = ()
    created: str | None = None


@dataclass(frozen=True)
class MatchingFile:
    """A data file that contains some of the requested paths, with their checksums and its number of live rows."""

    live_file: LiveFile
    checksums: dict[str, str]
    live_rows: int


class _NothingToRemove(Exception):
    """All paths to be removed are already removed."""


def find_matching_files(store: "Store", metadata: TableMetadata, paths: Sequence[str]) -> list[MatchingFile]:
    """Return the data files that contain any of `paths`, which must be sorted."""
    requested_paths, matching_files = set(paths), []
    for live_file in list_live_files(store, metadata):
        checksums: dict[str, str] = {}
        for _, _, table in scan_rows(store, metadata, [live_file], ["path", "sha256"], build_range_test(paths)):
            for path, sha256 in zip(column_values(table, "path"), column_values(table, "sha256"), strict=True):
                if path in requested_paths:
                    checksums[path] = sha256 or ""
        if checksums:
            matching_files.append(
                MatchingFile(live_file, checksums, live_file.entry.file.record_count - len(live_file.deleted_positions))
            )
    return matching_files


def build_range_test(paths: Sequence[str]) -> PathRangeTest:
    """Return a test of whether any of these sorted paths lies between two paths."""

    def may_contain(lowest: str | None, highest: str | None) -> bool:
        first = 0 if lowest is None else bisect_left(paths, lowest)
        return first < len(paths) and (highest is None or paths[first] <= highest)

    return may_contain


def publish_change_set(
    store: "Store", branch: str, table: "TableName", change_set: FileChangeSet, *, message: str, pin: str
) -> Commit | None:
    """Publish a change set, again on the newest version if another writer was faster; None if nothing is left to do.

    Raises Conflict if another writer gave one of its paths other contents since its base.
    """
    copied_files: dict[LiveFile, Sequence[DataFile]] = {}

    def draft() -> CommitDraft:
        version = find_current_version(store, table, branch)
        if version is None and change_set.base is not None:
            raise _table_replaced_error(table, branch)
        if version is not None and (change_set.base is None or version.location != change_set.base.location):
            _check_for_conflicts(store, branch, table, change_set, version)
        start = version.location if version is not None else change_set.created
        assert start is not None
        staged = stage_version(store, start, _build_edit(store, load_metadata(store, start), change_set, copied_files))
        failpoints.reach(failpoints.FILES_BEFORE_PUBLISH)
        change = CommitChange(table, version.location if version else None, staged)
        return CommitDraft(branch, message, store.author, (change,), pin=pin)

    try:
        return publish_with_retry(store.db, draft)
    except _NothingToRemove:
        return None


def _check_for_conflicts(
    store: "Store", branch: str, table: "TableName", change_set: FileChangeSet, version: TableVersion
) -> None:
    """Raise if the current version conflicts with the change set."""
    before = change_set.base.location if change_set.base else None
    planned_metadata, current_metadata = (
        load_metadata(store, before or str(change_set.created)),
        load_file_table(store, table, version),
    )
    if current_metadata.schema().fields != planned_metadata.schema().fields or (
        before and current_metadata.table_uuid != planned_metadata.table_uuid
    ):
        raise _table_replaced_error(table, branch)
    changed = find_changed_paths(store, before, version.location)
    conflicting = sorted(
        path for path in changed.keys() & change_set.checksums.keys() if changed[path] != change_set.checksums[path]
    )
    if conflicting:
        raise Conflict(
            "FILES_CONFLICT",
            f"another command changed {join_names(conflicting)} in `{table}` "
            f"on branch `{branch}` in the meantime; nothing was written",
            fix="read the other version with `runnel get`, then repeat the command to replace it",
        )


def _build_edit(
    store: "Store", metadata: TableMetadata, change_set: FileChangeSet, copied_files: dict[LiveFile, Sequence[DataFile]]
) -> VersionEdit:
    matching_files = find_matching_files(store, metadata, change_set.changed_paths)
    if not matching_files and not change_set.files:
        raise _NothingToRemove
    added = list(change_set.files)
    for matching_file in matching_files:
        if matching_file.live_file not in copied_files:  # the same for every attempt to publish
            copied_files[matching_file.live_file] = _copy_other_rows(store, metadata, matching_file)
        added += copied_files[matching_file.live_file]
    return VersionEdit(added=added, removed=[matching_file.live_file.entry for matching_file in matching_files])


def _copy_other_rows(store: "Store", metadata: TableMetadata, matching_file: MatchingFile) -> list[DataFile]:
    """Copy the rows of a data file, except for the matching paths, to new data files."""
    if len(matching_file.checksums) == matching_file.live_rows:
        return []
    writer = RowWriter(store, metadata)
    columns = [field.name for field in metadata.schema().fields]
    removed_paths = pa.array(sorted(matching_file.checksums), pa.large_string())
    with open_live_file(store, metadata, matching_file.live_file) as reader:
        for group in range(reader.file.metadata.num_row_groups):
            for rows in reader.read_group(group, columns, batch_rows=1024):
                paths = rows["path"].cast(pa.large_string())
                writer.write(rows.filter(pc.invert(pc.is_in(paths, value_set=removed_paths))))
    return writer.close()


def collect_checksums(matching_files: Iterable[MatchingFile]) -> dict[str, str]:
    """Return the checksums of all paths in the matching files."""
    return {path: sha256 for matching_file in matching_files for path, sha256 in matching_file.checksums.items()}


def _table_replaced_error(table: "TableName", branch: str) -> Conflict:
    what = f"`{table}` was dropped, created again or given other columns on branch `{branch}` in the meantime"
    return Conflict("WRITE_TABLE_REPLACED", what, fix="repeat the command: it writes to the current table")
