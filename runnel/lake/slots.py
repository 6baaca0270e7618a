"""Slots: private catalogs in which Spark reads and writes, so that it never sees a moving branch.

A slot is a fixed catalog name of a worker, `run_<worker>_<n>`. It is no ref: not listed, not forkable. Its tables are
exactly those that its user reads and writes, at one commit.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import RunnelError
from runnel.lake import schema
from runnel.lake.branches import catalog_state, clear, lock, register
from runnel.lake.commits import Change, Commit, State, find
from runnel.lake.database import Database
from runnel.lake.pins import later, owner, renewing
from runnel.names import SLOT_PREFIX, TableName


@dataclass(frozen=True)
class Slot:
    """A private catalog that holds some tables of a commit."""

    name: str
    commit: Commit
    base: State
    ended: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)


def take(db: Database, worker: str, number: int, commit: Commit, tables: State, layers: Iterable[str] = ()) -> Slot:
    """Fill a slot with `tables` as they are at `commit`, in one transaction.

    The caller has made sure that every thread and job that used the slot before has ended. `layers` are made known
    even where they have no table yet.
    """
    name = f"{SLOT_PREFIX}{worker}_{number}"

    def work(connection: Connection) -> Slot:
        lock(connection)
        current = find(connection, commit.id)
        if current is None or current.expired_at:
            raise RunnelError("REF_EXPIRED", f"the contents of commit {commit.id} are gone: its retention ended")
        clear(connection, name)
        now = db.now(connection)
        connection.execute(schema.slots.delete().where(schema.slots.c.name == name))
        values = {"name": name, "owner": owner(), "commit_id": commit.id, "taken_at": now}
        connection.execute(schema.slots.insert().values(**values, expires_at=later(now)))
        register(connection, name, {table: version.location for table, version in tables.items()})
        for layer in sorted(set(layers) - {table.layer for table in tables}):
            row = {"catalog_name": name, "namespace": layer, "property_key": "exists", "property_value": "true"}
            connection.execute(schema.iceberg_namespaces.insert().values(row))
        return Slot(name, commit, tables)

    taken = db.write(work)
    renewing(db, schema.slots, schema.slots.c.name == name, taken.ended)
    return taken


def written(db: Database, slot: Slot) -> tuple[Change, ...]:
    """Return what was written in a slot since it was taken, as changes that can be published."""

    def work(connection: Connection) -> dict[TableName, str]:
        held = sa.select(schema.slots.c.name).where(
            schema.slots.c.name == slot.name, schema.slots.c.commit_id == slot.commit.id
        )
        if connection.execute(held).first() is None:  # else its emptied catalog would look like dropped tables
            what = f"slot {slot.name} was not renewed for so long that it was taken away and its files may be swept"
            raise RunnelError("PUBLISH_LEASE_LOST", what, fix="run it again")
        return catalog_state(connection, slot.name)

    now = db.read(work)
    base: dict[TableName, str] = {table: version.location for table, version in slot.base.items()}
    return tuple(
        Change(table, base.get(table), now.get(table))
        for table in sorted(base.keys() | now.keys())
        if base.get(table) != now.get(table)
    )


def release(db: Database, slot: Slot) -> None:
    """Empty a slot. What it wrote and nobody published is swept later."""
    slot.ended.set()

    def work(connection: Connection) -> None:
        clear(connection, slot.name)
        connection.execute(schema.slots.delete().where(schema.slots.c.name == slot.name))

    db.write(work)


def in_use(connection: Connection) -> list[str]:
    """Return the names of all slots that are taken."""
    return list(connection.execute(sa.select(schema.slots.c.name).order_by(schema.slots.c.name)).scalars())
