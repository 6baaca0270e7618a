"""Manage slots: private catalogs in which Spark reads and writes, so that it never sees a moving branch.

A slot is a fixed catalog name of a worker, `run_<worker>_<n>`. It is no ref: it is not listed and can't be forked. It
contains exactly the tables that its user reads and writes, at one commit. Slot names are reused, so a token identifies
the holder: a process that was suspended for too long can't change a slot that another one acquired meanwhile.
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
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.history.branches import clear_catalog, ensure_layers, read_catalog_locations, register_tables
from runnel.lake.history.commits import Commit, CommitChange, LakeState, find_commit
from runnel.lake.leases.pins import current_lease_owner, lease_expires_at, start_lease_renewal
from runnel.names import SLOT_PREFIX, TableName


@dataclass(frozen=True)
class Slot:
    """A private catalog that holds some tables of a commit."""

    name: str
    commit: Commit
    base: LakeState
    ended: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    token: str = ""

    @property
    def lease(self) -> tuple[str, str]:
        """Return the name and token that a commit draft carries, so that it is published only if the lease is valid."""
        return self.name, self.token


def acquire_slot(
    db: Database, worker: str, number: int, commit: Commit, tables: LakeState, *, layers: Iterable[str] = ()
) -> Slot:
    """Acquire a slot and fill it with `tables` as they are at `commit`, in one transaction.

    The caller has made sure that every thread and job that used the slot before has ended. `layers` are created even
    if they have no table yet.
    """
    name, token = f"{SLOT_PREFIX}{worker}_{number}", secrets.token_hex(16)

    def work(connection: Connection) -> Slot:
        lock_lake(connection)
        current = find_commit(connection, commit.id)
        if current is None or current.expired_at:
            raise RunnelError("REF_EXPIRED", f"the contents of commit {commit.id} are gone: its retention ended")
        clear_catalog(connection, name)
        now = db.now(connection)
        connection.execute(schema.slots.delete().where(schema.slots.c.name == name))
        values = {"name": name, "owner": current_lease_owner(), "commit_id": commit.id, "taken_at": now, "token": token}
        connection.execute(schema.slots.insert().values(**values, expires_at=lease_expires_at(now)))
        register_tables(connection, name, {table: version.location for table, version in tables.items()})
        ensure_layers(connection, name, set(layers))
        return Slot(name, commit, tables, token=token)

    slot = db.write(work)
    start_lease_renewal(db, schema.slots, _is_leased((name, token)), slot.ended)
    return slot


def place_tables(db: Database, slot: Slot, locations: Mapping[TableName, str | None]) -> None:
    """Set tables of a slot to these versions, creating their layers; None removes a table."""

    def work(connection: Connection) -> None:
        lock_lake(connection)
        check_lease(connection, slot.lease)
        rows, columns = schema.iceberg_tables, schema.iceberg_tables.c
        for table in locations:
            is_table = sa.and_(columns.table_namespace == table.layer, columns.table_name == table.name)
            connection.execute(rows.delete().where(columns.catalog_name == slot.name, is_table))
        register_tables(
            connection,
            slot.name,
            {table: table_location for table, table_location in locations.items() if table_location is not None},
        )
        failpoints.reach(failpoints.SLOT_PLACED)

    db.write(work)


def read_location(db: Database, slot: Slot, table: TableName) -> str | None:
    """Return the current location of a slot's table, or None if the slot does not have the table."""
    columns = schema.iceberg_tables.c
    table_conditions = (columns.table_namespace == table.layer, columns.table_name == table.name)

    def work(connection: Connection) -> str | None:
        check_lease(connection, slot.lease)
        query = sa.select(columns.metadata_location).where(columns.catalog_name == slot.name, *table_conditions)
        return connection.execute(query).scalar()

    return db.read(work)


def list_changes(db: Database, slot: Slot) -> tuple[CommitChange, ...]:
    """Return what was written in a slot since it was acquired, as changes that can be published."""

    def work(connection: Connection) -> dict[TableName, str]:
        check_lease(connection, slot.lease)  # otherwise its cleared catalog would look like dropped tables
        return read_catalog_locations(connection, slot.name)

    current_locations = db.read(work)
    base_locations: dict[TableName, str] = {table: version.location for table, version in slot.base.items()}
    return tuple(
        CommitChange(table, base_locations.get(table), current_locations.get(table))
        for table in sorted(base_locations.keys() | current_locations.keys())
        if base_locations.get(table) != current_locations.get(table)
    )


def release(db: Database, slot: Slot) -> None:
    """Release and clear a slot, unless another process has acquired it. Unpublished files are swept later."""
    slot.ended.set()

    def work(connection: Connection) -> None:
        lock_lake(connection)
        if connection.execute(schema.slots.delete().where(_is_leased(slot.lease))).rowcount:
            clear_catalog(connection, slot.name)

    db.write(work)


def check_lease(connection: Connection, lease: tuple[str, str]) -> None:
    """Raise if the lease on a slot, given by name and token, was lost."""
    if connection.execute(sa.select(schema.slots.c.name).where(_is_leased(lease))).first() is None:
        what = f"the lease on slot {lease[0]} was not renewed in time, so gc may have removed its files"
        raise RunnelError("PUBLISH_LEASE_LOST", what, fix="run it again")


def _is_leased(lease: tuple[str, str]) -> "sa.ColumnElement[bool]":
    return sa.and_(schema.slots.c.name == lease[0], schema.slots.c.token == lease[1])
