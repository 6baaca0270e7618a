"""Slots: private catalogs in which Spark reads and writes, so that it never sees a moving branch.

A slot is a fixed catalog name of a worker, `run_<worker>_<n>`. It is no ref: not listed, not forkable. Its tables are
exactly those that its user reads and writes, at one commit. Its name is used again, so whoever took it is known by a
token: a process that was stopped for too long can't touch what another has taken meanwhile.
"""

import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import RunnelError
from runnel.lake import failpoints
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.catalog.lock import lock
from runnel.lake.history.branches import catalog_state, clear, ensure_layers, register
from runnel.lake.history.commits import Change, Commit, State, find
from runnel.lake.leases.pins import later, owner, renewing
from runnel.names import SLOT_PREFIX, TableName


@dataclass(frozen=True)
class Slot:
    """A private catalog that holds some tables of a commit."""

    name: str
    commit: Commit
    base: State
    ended: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    token: str = ""

    @property
    def lease(self) -> tuple[str, str]:
        """Return what a draft names so that it is published only while the slot is held."""
        return self.name, self.token


def take(db: Database, worker: str, number: int, commit: Commit, tables: State, layers: Iterable[str] = ()) -> Slot:
    """Fill a slot with `tables` as they are at `commit`, in one transaction.

    The caller has made sure that every thread and job that used the slot before has ended. `layers` are made known
    even where they have no table yet.
    """
    name, token = f"{SLOT_PREFIX}{worker}_{number}", secrets.token_hex(16)

    def work(connection: Connection) -> Slot:
        lock(connection)
        current = find(connection, commit.id)
        if current is None or current.expired_at:
            raise RunnelError("REF_EXPIRED", f"the contents of commit {commit.id} are gone: its retention ended")
        clear(connection, name)
        now = db.now(connection)
        connection.execute(schema.slots.delete().where(schema.slots.c.name == name))
        values = {"name": name, "owner": owner(), "commit_id": commit.id, "taken_at": now, "token": token}
        connection.execute(schema.slots.insert().values(**values, expires_at=later(now)))
        register(connection, name, {table: version.location for table, version in tables.items()})
        ensure_layers(connection, name, set(layers))
        return Slot(name, commit, tables, token=token)

    taken = db.write(work)
    renewing(db, schema.slots, _held((name, token)), taken.ended)
    return taken


def place(db: Database, slot: Slot, locations: Mapping[TableName, str | None]) -> None:
    """Make tables of a slot be at these versions, whatever they were; None removes one. Layers come with them."""

    def work(connection: Connection) -> None:
        lock(connection)
        hold(connection, slot.lease)
        rows, columns = schema.iceberg_tables, schema.iceberg_tables.c
        for table in locations:
            here = sa.and_(columns.table_namespace == table.layer, columns.table_name == table.name)
            connection.execute(rows.delete().where(columns.catalog_name == slot.name, here))
        register(connection, slot.name, {table: at for table, at in locations.items() if at is not None})
        failpoints.reach(failpoints.SLOT_PLACED)

    db.write(work)


def location(db: Database, slot: Slot, table: TableName) -> str | None:
    """Return where a table of a slot is now, or None where it has none of that name."""
    columns = schema.iceberg_tables.c
    here = (columns.table_namespace == table.layer, columns.table_name == table.name)

    def work(connection: Connection) -> str | None:
        hold(connection, slot.lease)
        query = sa.select(columns.metadata_location).where(columns.catalog_name == slot.name, *here)
        return connection.execute(query).scalar()

    return db.read(work)


def written(db: Database, slot: Slot) -> tuple[Change, ...]:
    """Return what was written in a slot since it was taken, as changes that can be published."""

    def work(connection: Connection) -> dict[TableName, str]:
        hold(connection, slot.lease)  # else its emptied catalog would look like dropped tables
        return catalog_state(connection, slot.name)

    now = db.read(work)
    base: dict[TableName, str] = {table: version.location for table, version in slot.base.items()}
    return tuple(
        Change(table, base.get(table), now.get(table))
        for table in sorted(base.keys() | now.keys())
        if base.get(table) != now.get(table)
    )


def release(db: Database, slot: Slot) -> None:
    """Empty a slot, unless another has it by now. What it wrote and nobody published is swept later."""
    slot.ended.set()

    def work(connection: Connection) -> None:
        lock(connection)
        if connection.execute(schema.slots.delete().where(_held(slot.lease))).rowcount:
            clear(connection, slot.name)

    db.write(work)


def hold(connection: Connection, lease: tuple[str, str]) -> None:
    """Raise where a slot, known by its name and token, is no longer held by whoever took it."""
    if connection.execute(sa.select(schema.slots.c.name).where(_held(lease))).first() is None:
        what = f"slot {lease[0]} was not renewed for so long that it was taken away and its files may be swept"
        raise RunnelError("PUBLISH_LEASE_LOST", what, fix="run it again")


def in_use(connection: Connection) -> list[str]:
    """Return the names of all slots that are taken."""
    return list(connection.execute(sa.select(schema.slots.c.name).order_by(schema.slots.c.name)).scalars())


def _held(lease: tuple[str, str]) -> "sa.ColumnElement[bool]":
    return sa.and_(schema.slots.c.name == lease[0], schema.slots.c.token == lease[1])
