"""Publish a commit: one SQL transaction makes all changes of a write visible, or none.

The commit's id is chosen before the transaction. After any error the id is looked up: if it exists, the publish
succeeded; if the database is unreachable, the outcome is unknown and nothing is deleted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import RunnelError, VersionConflict
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.control import run_claims
from runnel.lake.flow_state import ingest_positions, streams
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.history.adopt import adopt_in_transaction, record_commit
from runnel.lake.history.branches import ensure_layers, get_branch
from runnel.lake.history.commits import Commit, CommitChange, find_commit, has_erasure_since
from runnel.lake.leases import slots
from runnel.names import TableName, new_commit_id
from runnel.phase_timer import measure_phase

T = TypeVar("T")


@dataclass(frozen=True)
class CommitDraft:
    """A commit that is not yet published. Each change starts from the version that its table must still have."""

    branch: str
    message: str
    author: str
    changes: tuple[CommitChange, ...]
    kind: str = "write"
    run: str | None = None
    merged: str | None = None
    expected_head: str | None = None  # if set, the branch must still be at this commit
    required_versions: tuple[tuple[TableName, str | None], ...] = ()  # that other tables must have; None: absent
    planned_sequence: int | None = None  # if set, the lake's sequence at planning: rows erased since must not return
    pin: str | None = None  # if set, the pin that the write must still hold
    slot: tuple[str, str] | None = None  # if set, the name and token of the slot that it must still hold
    processed_files: tuple[tuple[TableName, ProcessedFile], ...] = ()  # new positions of sources
    batch: streams.StreamBatch | None = None  # if set, the stream batch that this commit publishes
    claim: tuple[str, str] | None = None  # if set, the id of its queue entry and the token of the claim
    id: str = field(default_factory=new_commit_id)


@measure_phase("publish")
def publish(db: Database, draft: CommitDraft) -> Commit:
    """Make a draft visible on its branch, and return its commit.

    Raises VersionConflict if a table is no longer at the version that its change starts from. The same transaction
    adopts what another engine changed meanwhile.
    """
    failpoints.reach(failpoints.PUBLISH_BEFORE)
    try:
        commit = db.write(lambda connection: _publish_in_transaction(db, connection, draft))
    except RunnelError as error:
        if error.code != "DATABASE_INTEGRITY":
            raise
        # Another engine, which does not take our lock, created the same table or layer at the same moment.
        raise VersionConflict(draft.branch, [str(change.table) for change in draft.changes]) from error
    failpoints.reach(failpoints.PUBLISH_AFTER_COMMIT)
    return commit


def retry_on_conflict(operation: Callable[[], T], attempts: int = 50, conflict: type[Exception] = VersionConflict) -> T:
    """Return what `operation` returns; call it again, on the new base, after each version conflict.

    There are no pauses, as a new base is there already; so this needs no `backoff`, which would load tenacity for
    every commit.
    """
    for _ in range(attempts - 1):
        try:
            return operation()
        except conflict:
            continue
    return operation()


def publish_with_retry(db: Database, make_draft: Callable[[], CommitDraft]) -> Commit:
    """Publish the draft that `make_draft` returns; call it again on the new base after each version conflict."""
    return retry_on_conflict(lambda: publish(db, make_draft()))


def _publish_in_transaction(db: Database, connection: Connection, draft: CommitDraft) -> Commit:
    lock_lake(connection)
    if (existing_commit := find_commit(connection, draft.id)) is not None:
        return existing_commit  # an earlier attempt took effect, and its acknowledgement was lost
    adopt_in_transaction(db, connection, get_branch(connection, draft.branch))
    target = get_branch(connection, draft.branch)
    if draft.expected_head is not None and target.head != draft.expected_head:
        raise VersionConflict(draft.branch, [str(change.table) for change in draft.changes] or ["(head)"])
    _check_leases(connection, draft)
    conflicting_tables = [
        table
        for table, location in draft.required_versions
        if _read_location(connection, draft.branch, table) != location
    ]
    conflicting_tables += _find_erased_tables(connection, draft)
    conflicting_tables += [
        change.table for change in draft.changes if not _apply_change(connection, draft.branch, change)
    ]
    if conflicting_tables:
        raise VersionConflict(draft.branch, [str(table) for table in conflicting_tables])
    ensure_layers(connection, draft.branch, {change.table.layer for change in draft.changes if change.after})
    failpoints.reach(failpoints.PUBLISH_ROWS)
    values = {
        "kind": draft.kind,
        "author": draft.author,
        "message": draft.message,
        "run": draft.run,
        "merged": draft.merged,
    }
    changes = tuple(replace(change, content=change.content or change.after) for change in draft.changes)
    commit = record_commit(db, connection, target, commit_id=draft.id, values=values, changes=changes)
    ingest_positions.write_positions(connection, commit, draft.processed_files)
    if draft.batch is not None:
        streams.record_batch(connection, draft.batch, commit.id, db.now(connection))
    if draft.claim is not None:
        run_claims.record_commit(connection, draft.claim, commit.id)
    failpoints.reach(failpoints.PUBLISH_BEFORE_COMMIT)
    return commit


def _check_leases(connection: Connection, draft: CommitDraft) -> None:
    if draft.slot is not None:
        slots.check_lease(connection, draft.slot)
    if draft.pin is None:
        return
    if connection.execute(sa.select(schema.pins.c.id).where(schema.pins.c.id == draft.pin)).first() is None:
        raise RunnelError(
            "PUBLISH_LEASE_LOST",
            "this write was paused for so long that its lease expired, and gc may have removed its files",
            fix="run it again",
        )


def _find_erased_tables(connection: Connection, draft: CommitDraft) -> list[TableName]:
    """Return all tables of a draft if rows were erased anywhere in the lake since the draft was planned."""
    if draft.planned_sequence is None or not has_erasure_since(connection, draft.planned_sequence):
        return []
    return [change.table for change in draft.changes]


def _build_row_condition(branch_name: str, table: TableName) -> "sa.ColumnElement[bool]":
    columns = schema.iceberg_tables.c
    return sa.and_(
        columns.catalog_name == branch_name, columns.table_namespace == table.layer, columns.table_name == table.name
    )


def _read_location(connection: Connection, branch_name: str, table: TableName) -> str | None:
    query = sa.select(schema.iceberg_tables.c.metadata_location).where(_build_row_condition(branch_name, table))
    return connection.execute(query).scalar()


def _apply_change(connection: Connection, branch_name: str, change: CommitChange) -> bool:
    """Move one row of the catalog from `before` to `after`; return False if it is not at `before`."""
    table = schema.iceberg_tables
    is_row = _build_row_condition(branch_name, change.table)
    if change.before is None:
        if connection.execute(sa.select(table.c.table_name).where(is_row)).first():
            return False
        row = {"catalog_name": branch_name, "table_namespace": change.table.layer, "table_name": change.table.name}
        connection.execute(table.insert().values(**row, metadata_location=change.after, iceberg_type="TABLE"))
        return True
    is_base_row = sa.and_(is_row, table.c.metadata_location == change.before)
    if change.after is None:
        return connection.execute(table.delete().where(is_base_row)).rowcount == 1
    values = {"metadata_location": change.after, "previous_metadata_location": change.before}
    return connection.execute(table.update().where(is_base_row).values(values)).rowcount == 1
