"""Remove the pins and slots whose owners have ended, so that gc can delete the files that they protected.

A writer that was only suspended for too long finds its pin removed when it publishes, and is refused.
"""

import os
import socket
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, read_clock
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.history.branches import clear_catalog


def find_expired(db: Database, connection: Connection, now: str) -> tuple[list[str], list[str]]:
    """Return the pins and the slots that no process holds any more."""

    def is_over(owner: str, expires_at: str) -> bool:
        # SQLite is used from one machine, so a dead process is seen at once; otherwise its lease has to expire.
        return expires_at <= now or (db.is_sqlite and is_lease_owner_dead(owner))

    pins, slots = schema.pins.c, schema.slots.c
    pin_rows = connection.execute(sa.select(pins.id, pins.owner, pins.expires_at))
    slot_rows = connection.execute(sa.select(slots.name, slots.owner, slots.expires_at))
    return (
        [row.id for row in pin_rows if is_over(row.owner, row.expires_at)],
        [row.name for row in slot_rows if is_over(row.owner, row.expires_at)],
    )


def is_lease_held(connection: Connection, *, pin: str | None, slot: tuple[str, str] | None) -> bool:
    """Return whether a process still holds a pin, or a slot that is given by its name and token."""
    is_sqlite = connection.dialect.name == "sqlite"
    pins, slots = schema.pins.c, schema.slots.c
    queries = []
    if pin is not None:
        queries.append(sa.select(pins.owner, pins.expires_at).where(pins.id == pin))
    if slot is not None:
        row_filter = sa.and_(slots.name == slot[0], slots.token == slot[1])
        queries.append(sa.select(slots.owner, slots.expires_at).where(row_filter))
    rows = [row for query in queries for row in connection.execute(query)]
    now = read_clock(connection)
    return any(row.expires_at > now and not (is_sqlite and is_lease_owner_dead(row.owner)) for row in rows)


def remove_expired(db: Database, now: str) -> int:
    """Remove the pins and slots that no process holds any more, and return how many."""

    def work(connection: Connection) -> int:
        lock_lake(connection)
        pins, slots = find_expired(db, connection, now)
        for pin in pins:
            connection.execute(schema.pins.delete().where(schema.pins.c.id == pin))
        for slot in slots:
            clear_catalog(connection, slot)
            connection.execute(schema.slots.delete().where(schema.slots.c.name == slot))
        return len(pins) + len(slots)

    return db.write(work)


def is_lease_owner_dead(owner: str) -> bool:
    """Return whether the owner of a lease is a process of this machine that has ended."""
    host, _, pid = owner.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_zombie(pid)


def _is_zombie(pid: str) -> bool:
    """Return whether a process has ended, but is still listed because its parent has not asked how."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended since, or this system has no /proc
        return False
    return stat.rpartition(")")[2].split()[0] == "Z"
