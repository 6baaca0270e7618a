"""Compact tables: merge small files, apply position deletes and merge manifests.

The rows and the content version stay the same, so a compaction causes no recomputation. It never waits for or blocks a
writer: if another writer changed the same files meanwhile, the attempt is dropped.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile

from runnel.errors import VersionConflict
from runnel.lake import failpoints
from runnel.lake.flow_state.ingest_positions import has_ingested
from runnel.lake.history.branches import get_branch as branch_of
from runnel.lake.history.commits import Commit, CommitChange, find_version
from runnel.lake.iceberg import table_properties
from runnel.lake.iceberg.data_file_owners import SHARED_FILE_BYTES
from runnel.lake.iceberg.manifests import FileEntry, read_entries, read_manifests
from runnel.lake.iceberg.parquet_writer import TARGET_BYTES
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import UnwritableTable, check_writable, drop_history, load_metadata
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.owners.row_runs import list_runs
from runnel.lake.publish import CommitDraft, publish, retry_on_conflict
from runnel.lake.scan.duckdb_types import DuckdbScanError
from runnel.lake.scan.scan_units import list_outside_paths
from runnel.lake.upkeep.compact.file_selection import CompactionPlan, plan_compaction
from runnel.lake.upkeep.compact.group_rewriter import GroupRewriter
from runnel.lake.upkeep.compact.owned_rewriter import OwnedGroupRewriter
from runnel.lake.work_runner import IN_PROCESS, WorkContext
from runnel.model.table_version import TableVersion
from runnel.model.work_place import WorkPlace
from runnel.names import TableName

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_ATTEMPTS = 20
_QUARANTINE = "quarantine"


@dataclass(frozen=True)
class CompactionResult:
    """What a compaction did to a table. Without a `commit` it did nothing, and `note` says why."""

    table: str
    commit: str | None
    files_before: int = 0  # data files that were rewritten
    files_after: int = 0
    deletes_dropped: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    manifests_before: int = 0
    manifests_after: int = 0
    rows: int = 0
    note: str = ""
    place: WorkPlace | None = None  # where files were rewritten


@dataclass(frozen=True)
class _Options:
    """What the caller of `compact` chose; the parameters of that name."""

    target_bytes: int | None
    force: bool
    only_small: bool
    work: WorkContext


@dataclass(frozen=True)
class _TableCompaction:
    """The compaction of a table on a branch, planned for the version with this `metadata`."""

    store: "Store"
    branch: str
    table: "TableName"
    metadata: "TableMetadata"
    plan: CompactionPlan
    target_bytes: int
    has_owners: bool  # source files replace their own rows


@dataclass(frozen=True)
class _RewrittenFiles:
    """The new files, which files each of them replaces, and where they were written."""

    files: tuple[DataFile, ...]
    replaces: Mapping[str, list[str]]
    place: WorkPlace


def compact(
    store: "Store",
    table: "TableName | None" = None,
    *,
    branch: str = "main",
    target_bytes: int | None = None,
    force: bool = False,
    only_small: bool = False,
    work: WorkContext = IN_PROCESS,
) -> tuple[CompactionResult, ...]:
    """Compact one table of a branch, or all of them, each in a commit of its own.

    New files are about as large as the table's `write.target-file-size-bytes`, or `target_bytes`. Files that were
    registered in place are rewritten only with `force`. With `only_small`, large files are left alone even if rows of
    them are deleted. `work` says where the files are rewritten.
    """
    store.db.read(lambda connection: branch_of(connection, branch))
    commit = store.commit(branch)
    versions = store.versions(commit, [table]) if table is not None else store.state(commit)
    options = _Options(target_bytes, force, only_small, work)
    results = []
    for name, version in versions.items():
        has_owners = has_owned_rows(store, commit, name, version)
        try:
            results.append(_compact_table(store, branch, name, version, options, has_owners=has_owners))
        except (DuckdbScanError, UnwritableTable) as error:
            results.append(CompactionResult(str(name), None, note=error.what))
    return tuple(results)


def has_owned_rows(store: "Store", commit: Commit, table: "TableName", version: TableVersion) -> bool:
    """Return whether rows belong to files of a source, which are replaced when that file changes.

    The same holds for the quarantined rows of such files.
    """
    if table.layer == _QUARANTINE:
        properties = load_metadata(store, version.location).properties
        quarantined_table = properties.get(table_properties.QUARANTINE_OF)
        return quarantined_table is not None and store.db.read(
            partial(has_ingested, commit=commit, table=TableName.parse_unchecked(quarantined_table), files=True)
        )
    if store.db.read(partial(has_ingested, commit=commit, table=table, files=True)):
        return True
    has_feed_position = store.db.read(partial(has_ingested, commit=commit, table=table))
    return (
        not has_feed_position
        and load_metadata(store, version.location).properties.get(table_properties.SOURCE) == "files"
    )


def _compact_table(
    store: "Store", branch: str, table: "TableName", version: TableVersion, options: _Options, *, has_owners: bool
) -> CompactionResult:
    with acquire_pin(store.db, "write") as pin:
        metadata = load_metadata(store, version.location)
        check_writable(metadata)
        table_target_bytes = metadata.properties.get("write.target-file-size-bytes", TARGET_BYTES)
        target_bytes = options.target_bytes or int(table_target_bytes)
        target_bytes = min(target_bytes, SHARED_FILE_BYTES) if has_owners else target_bytes
        plan = plan_compaction(
            store,
            metadata,
            target_bytes,
            force=options.force,
            only_small=options.only_small,
            only_owned=has_owners,
        )
        if plan.is_empty:
            return CompactionResult(str(table), None, note=_describe_unowned(store, metadata, has_owners=has_owners))
        compaction = _TableCompaction(store, branch, table, metadata, plan, target_bytes, has_owners)
        rewritten = _rewrite_groups(compaction, options)
        failpoints.reach(failpoints.COMPACT_FILES)
        return _publish_compaction(compaction, rewritten, pin)


def _describe_unowned(store: "Store", metadata: "TableMetadata", *, has_owners: bool) -> str:
    """Return why nothing is done: perhaps rows can't be attributed to source files, which would replace them."""
    unowned_entries = [
        entry
        for entry in (read_entries(store, metadata) if has_owners else ())
        if entry.is_data and not list_runs(store, entry)
    ]
    if len(unowned_entries) < 2:
        return "nothing to do"
    return f"skipped: {len(unowned_entries):,} files don't say which source files their rows came from"


def _rewrite_groups(compaction: _TableCompaction, options: _Options) -> _RewrittenFiles:
    files: list[DataFile] = []
    replaces: dict[str, list[str]] = {}
    groups = compaction.plan.groups
    rewriter_class = OwnedGroupRewriter if compaction.has_owners else GroupRewriter
    rewriter = rewriter_class(compaction.store.files, drop_history(compaction.metadata), compaction.target_bytes)
    outside_paths = list_outside_paths(compaction.store.warehouse, compaction.plan.replaced_files)
    activity = f"compact {compaction.table}"
    runner = options.work.choose_runner(compaction.plan.rewritten_bytes, outside_paths)
    results = runner.run(rewriter, groups, options.work.make_unit_reporter(activity))
    for group, new_files in zip(groups, results, strict=True):
        files += new_files
        replaces |= {file.file_path: [entry.path for entry in group.data] for file in new_files}
    return _RewrittenFiles(tuple(files), replaces, runner.place)


def _publish_compaction(compaction: _TableCompaction, rewritten: _RewrittenFiles, pin: str) -> CompactionResult:
    result = None
    with suppress(VersionConflict):
        result = retry_on_conflict(lambda: _publish_once(compaction, rewritten, pin), _ATTEMPTS)
    conflict_note = "another process changed the same files in the meantime; try again later"
    return result or CompactionResult(str(compaction.table), None, note=conflict_note)


def _publish_once(compaction: _TableCompaction, rewritten: _RewrittenFiles, pin: str) -> CompactionResult | None:
    """Publish onto the current version; return None if the rewritten files have changed."""
    store, branch, table, plan = compaction.store, compaction.branch, compaction.table, compaction.plan
    version = _read_current_version(store, branch, table)
    removed_entries = _find_removed_entries(compaction, version)
    if version is None or removed_entries is None:
        return None
    edit = VersionEdit(
        rewritten.files,
        removed_entries,
        is_rewrite=True,
        sequence=max((entry.sequence for entry in plan.replaced_files), default=None),
        rewrites_manifests=plan.merges_manifests,
    )
    staged = stage_version(store, version.location, edit)
    failpoints.reach(failpoints.COMPACT_STAGED)
    change = CommitChange(table, version.location, staged, version.content, {"replaces": dict(rewritten.replaces)})
    message = f"compact {table}: {len(plan.replaced_files)} files into {len(rewritten.files)}"
    commit = publish(store.db, CommitDraft(branch, message, store.author, (change,), kind="compact", pin=pin))
    return _build_result(compaction, rewritten, commit.id, version.location, staged)


def _read_current_version(store: "Store", branch: str, table: "TableName") -> TableVersion | None:
    commit = store.commit(branch)
    return store.db.read(lambda connection: find_version(connection, commit, table))


def _find_removed_entries(compaction: _TableCompaction, version: TableVersion | None) -> tuple[FileEntry, ...] | None:
    """Return the entries that a compaction removes from a version, or None if the rows of those files have changed.

    New rows and new columns don't matter. But a new delete file may name rows of these files, by position or by
    value, and the new files would bring them back; and a revert may restore files that a dropped delete applied to.
    """
    store, plan, planned_metadata = compaction.store, compaction.plan, compaction.metadata
    metadata = load_metadata(store, version.location) if version is not None else None
    if metadata is None or metadata.table_uuid != planned_metadata.table_uuid:
        return None
    if (
        planned_metadata.schema() not in metadata.schemas
        or not planned_metadata.specs().keys() <= metadata.specs().keys()
    ):
        return None
    live_entries = {entry.path: entry for entry in read_entries(store, metadata)}
    planned_paths = {entry.path for entry in read_entries(store, planned_metadata)}
    entries_to_remove = [*plan.replaced_files, *plan.dropped_deletes]
    required_entries = [*entries_to_remove, *(entry for group in plan.groups for entry in group.deletes)]
    newest_delete_sequence = max((entry.sequence for entry in plan.dropped_deletes), default=-1)
    added_entries = [entry for path, entry in live_entries.items() if path not in planned_paths]
    if any(not entry.is_data or entry.sequence <= newest_delete_sequence for entry in added_entries):
        return None
    if any(entry.path not in live_entries for entry in required_entries):
        return None
    return tuple(live_entries[entry.path] for entry in entries_to_remove)


def _build_result(
    compaction: _TableCompaction, rewritten: _RewrittenFiles, commit: str, before: str, after: str
) -> CompactionResult:
    store, plan = compaction.store, compaction.plan
    return CompactionResult(
        str(compaction.table),
        commit,
        files_before=len(plan.replaced_files),
        files_after=len(rewritten.files),
        deletes_dropped=len(plan.dropped_deletes),
        bytes_before=sum(entry.file.file_size_in_bytes for entry in plan.replaced_files),
        bytes_after=sum(file.file_size_in_bytes for file in rewritten.files),
        manifests_before=len(read_manifests(store, load_metadata(store, before))),
        manifests_after=len(read_manifests(store, load_metadata(store, after))),
        rows=sum(file.record_count for file in rewritten.files),
        place=rewritten.place,
    )
