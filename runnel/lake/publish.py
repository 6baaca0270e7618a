"""Publish: one SQL transaction that makes all changes of a write visible, or none.

The commit's id is chosen before the transaction. After any error it is looked up: found means success, unreachable
means unknown, and on unknown nothing is deleted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Moved, RunnelError
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.lock import lock
from runnel.lake.control import run_queue
from runnel.lake.flow_state import ingest_positions, streams
from runnel.lake.flow_state.ingest_position import Seen
from runnel.lake.history.adopt import adopted, record
from runnel.lake.history.branches import branch, ensure_layers
from runnel.lake.history.commits import Change, Commit, erased_since, find
from runnel.lake.leases import slots
from runnel.names import TableName, new_commit_id
from runnel.phase_timer import phase


@dataclass(frozen=True)
class Draft:
    """A commit that is not yet published. Each change starts from the version that its table must still have."""

    branch: str
    message: str
    author: str
    changes: tuple[Change, ...]
    kind: str = "write"
    run: str | None = None
    merged: str | None = None
    head: str | None = None  # if set, the branch must still be at this commit
    unmoved: tuple[tuple[TableName, str | None], ...] = ()  # what else the write relies on: None is no such table
    planned: int | None = None  # if set, the lake's sequence then: rows erased since must not come back by this write
    pin: str | None = None  # if set, the pin that the write must still hold
    slot: tuple[str, str] | None = None  # if set, the name and token of the slot that it must still hold
    seen: tuple[tuple[TableName, Seen], ...] = ()  # what sources have given with this write
    batch: streams.Batch | None = None  # if set, the batch of a stream that this is
    claim: tuple[str, str] | None = None  # if set, the entry of the queue that this is, and the token of its claim
    id: str = field(default_factory=new_commit_id)


@phase("publish")
def publish(db: Database, draft: Draft) -> Commit:
    """Make a draft visible on its branch, and return its commit.

    Raises Moved where a table is no longer at the version that its change starts from. What another engine changed
    meanwhile is adopted in the same transaction.
    """
    failpoints.reach(failpoints.PUBLISH_BEFORE)
    try:
        commit = db.write(lambda connection: _publish(db, connection, draft))
    except RunnelError as error:
        if error.code != "DATABASE_INTEGRITY":
            raise
        # Another engine, which knows no lock of ours, made the same table or layer at the same moment.
        raise Moved(draft.branch, [str(change.table) for change in draft.changes]) from error
    failpoints.reach(failpoints.PUBLISH_AFTER_COMMIT)
    return commit


def publish_again(db: Database, make: Callable[[], Draft], attempts: int = 50) -> Commit:
    """Publish what `make` drafts, drafting anew on the new base each time that somebody else was faster."""
    for _ in range(attempts - 1):
        try:
            return publish(db, make())
        except Moved:
            continue
    return publish(db, make())


def _publish(db: Database, connection: Connection, draft: Draft) -> Commit:
    lock(connection)
    if (made := find(connection, draft.id)) is not None:
        return made  # an earlier attempt took effect, and its acknowledgement was lost
    adopted(db, connection, branch(connection, draft.branch))
    target = branch(connection, draft.branch)
    if draft.head is not None and target.head != draft.head:
        raise Moved(draft.branch, [str(change.table) for change in draft.changes] or ["(head)"])
    _hold(connection, draft)
    moved = [table for table, location in draft.unmoved if _location(connection, draft.branch, table) != location]
    moved += _erased(connection, draft)
    moved += [change.table for change in draft.changes if not _apply(connection, draft.branch, change)]
    if moved:
        raise Moved(draft.branch, [str(table) for table in moved])
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
    commit = record(db, connection, target, draft.id, values, changes)
    ingest_positions.store(connection, commit, draft.seen)
    if draft.batch is not None:
        streams.publish(connection, draft.batch, commit.id, db.now(connection))
    if draft.claim is not None:
        run_queue.hold(connection, draft.claim, commit.id)
    failpoints.reach(failpoints.PUBLISH_BEFORE_COMMIT)
    return commit


def _hold(connection: Connection, draft: Draft) -> None:
    if draft.slot is not None:
        slots.hold(connection, draft.slot)
    if draft.pin is None:
        return
    if connection.execute(sa.select(schema.pins.c.id).where(schema.pins.c.id == draft.pin)).first() is None:
        raise RunnelError(
            "PUBLISH_LEASE_LOST",
            "this write was stopped for so long that its lease ended and its files may have been swept",
            fix="run it again",
        )


def _erased(connection: Connection, draft: Draft) -> list[TableName]:
    """Return the tables of a draft that was planned from older versions, if rows were erased anywhere since."""
    if draft.planned is None or not erased_since(connection, draft.planned):
        return []
    return [change.table for change in draft.changes]


def _here(name: str, table: TableName) -> "sa.ColumnElement[bool]":
    columns = schema.iceberg_tables.c
    return sa.and_(
        columns.catalog_name == name, columns.table_namespace == table.layer, columns.table_name == table.name
    )


def _location(connection: Connection, name: str, table: TableName) -> str | None:
    query = sa.select(schema.iceberg_tables.c.metadata_location).where(_here(name, table))
    return connection.execute(query).scalar()


def _apply(connection: Connection, name: str, change: Change) -> bool:
    """Move one row of the catalog from `before` to `after`; False where it is not at `before`."""
    table = schema.iceberg_tables
    here = _here(name, change.table)
    if change.before is None:
        if connection.execute(sa.select(table.c.table_name).where(here)).first():
            return False
        row = {"catalog_name": name, "table_namespace": change.table.layer, "table_name": change.table.name}
        connection.execute(table.insert().values(**row, metadata_location=change.after, iceberg_type="TABLE"))
        return True
    based = sa.and_(here, table.c.metadata_location == change.before)
    if change.after is None:
        return connection.execute(table.delete().where(based)).rowcount == 1
    values = {"metadata_location": change.after, "previous_metadata_location": change.before}
    return connection.execute(table.update().where(based).values(values)).rowcount == 1
