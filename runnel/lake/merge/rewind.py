"""Reset a source's table and its position to an earlier version, so that the source is read again.

A revert removes rows and keeps the position: bad rows are not read again. A rewind resets both in one commit, so that
the next run reads everything since, each row once. The source's quarantine table is reset, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from runnel.errors import Mistake, did_you_mean
from runnel.lake.flow_state.ingest_position import STATE_PATH, ProcessedFile
from runnel.lake.flow_state.ingest_positions import has_ingested, read_position
from runnel.lake.history.adopt import adopt_outside_changes
from runnel.lake.history.commits import Commit, CommitChange, find_version, read_sequence
from runnel.lake.history.refs import check_retained, read_head
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.publish import CommitDraft, publish_with_retry
from runnel.model.table_version import TableVersion
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.lake.store import Store

KIND = "rewind"


@dataclass(frozen=True)
class RewindResult:
    """What a rewind did or would do: `files` is the number of files to read again; other sources have a state."""

    table: TableName
    to: Commit
    files: int
    has_state: bool
    drops: bool  # the table did not exist yet
    commit: Commit | None = None


@dataclass(frozen=True)
class _Rewind:
    """What to reset on a branch, and the commit whose state it returns to."""

    branch: str
    target: Commit
    table: TableName
    other_tables: tuple[TableName, ...]


def rewind_table(
    store: "Store",
    table: TableName,
    to: str,
    *,
    branch: str = "main",
    other_tables: tuple[TableName, ...] = (),
    dry_run: bool = False,
) -> RewindResult:
    """Reset a source's table, its position and the existing `other_tables` to what they were at a ref."""
    adopt_outside_changes(store.db, branch)
    target = check_retained(store.commit(to))
    rewind = _Rewind(branch, target, table, other_tables)
    with acquire_pin(store.db, "write") as pin, acquire_pin(store.db, "read", target.id):
        results: list[RewindResult] = []

        def make_draft() -> CommitDraft:
            planned = store.db.read(read_sequence)
            changes, processed_files, result = store.db.read(lambda connection: _plan_rewind(connection, store, rewind))
            results.append(result)
            if not changes and not processed_files:
                what = f"`{table}` and the position of its source are already as they were at {target.id[:8]}"
                raise Mistake("REWIND_NOTHING", what, fix=f"`runnel log {table}` lists its versions")
            message = f"rewind {table} to {target.id[:8]}"
            return CommitDraft(
                branch,
                message,
                store.author,
                changes,
                kind=KIND,
                planned_sequence=planned,
                pin=pin,
                processed_files=tuple((table, processed_file) for processed_file in processed_files),
            )

        if dry_run:
            make_draft()
            return results[-1]
        commit = publish_with_retry(store.db, make_draft)
    return replace(results[-1], commit=commit)


def _plan_rewind(
    connection: Connection, store: "Store", rewind: _Rewind
) -> tuple[tuple[CommitChange, ...], tuple[ProcessedFile, ...], RewindResult]:
    tip, target, table = read_head(connection, rewind.branch), rewind.target, rewind.table
    if not has_ingested(connection, tip, table):
        raise _no_source_error(connection, store, tip, table)
    current_position, target_position = read_position(connection, tip, table), read_position(connection, target, table)
    version = find_version(connection, target, table)
    processed_files = _restore_position(current_position, target_position if version is not None else {})
    changes = [
        _build_change(item, find_version(connection, tip, item), find_version(connection, target, item))
        for item in (table, *rewind.other_tables)
    ]
    files = sum(item.path != STATE_PATH for item in processed_files)
    result = RewindResult(
        table, target, files, any(item.path == STATE_PATH for item in processed_files), version is None
    )
    return tuple(change for change in changes if change is not None), processed_files, result


def _restore_position(
    current_position: Mapping[str, ProcessedFile], target_position: Mapping[str, ProcessedFile]
) -> tuple[ProcessedFile, ...]:
    """Return the entries that restore an earlier position; files read since are recorded as removed."""
    restored = [
        processed_file
        for path, processed_file in target_position.items()
        if current_position.get(path) != processed_file
    ]
    removed = [
        processed_file.as_removed()
        for path, processed_file in current_position.items()
        if path not in target_position and processed_file != processed_file.as_removed()
    ]
    return (*restored, *removed)


def _build_change(table: TableName, current: TableVersion | None, target: TableVersion | None) -> CommitChange | None:
    if current == target:
        return None
    return CommitChange(
        table,
        current.location if current else None,
        target.location if target else None,
        target.content if target else None,
    )


def _no_source_error(connection: Connection, store: "Store", tip: Commit, table: TableName) -> Mistake:
    if find_version(connection, tip, table) is None:
        names = [str(name) for name in store.state(tip.branch)]
        what = f"there is no table `{table}` on branch `{tip.branch}`" + did_you_mean(str(table), names)
        return Mistake("REWIND_UNKNOWN", what, fix="`runnel tables` lists them")
    what = f"no source has read rows into `{table}`: there is nothing to read again"
    return Mistake("REWIND_NO_SOURCE", what, fix="runnel revert COMMIT undoes what a task or a person wrote")
