"""End the pins and slots whose holders are gone, so that what they held can be swept.

A writer that was only stopped for too long finds its pin gone when it publishes, and is refused.
"""

import os
import socket

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, clock
from runnel.lake.catalog.lock import lock
from runnel.lake.history.branches import clear


def ended(db: Database, connection: Connection, now: str) -> tuple[list[str], list[str]]:
    """Return the pins and the slots that nobody holds any more."""

    def is_over(owner: str, expires_at: str) -> bool:
        # SQLite is used from one machine, so there a dead process is known at once; elsewhere its lease has to end.
        return expires_at <= now or (db.is_sqlite and is_dead(owner))

    pins, slots = schema.pins.c, schema.slots.c
    held = connection.execute(sa.select(pins.id, pins.owner, pins.expires_at))
    taken = connection.execute(sa.select(slots.name, slots.owner, slots.expires_at))
    return (
        [row.id for row in held if is_over(row.owner, row.expires_at)],
        [row.name for row in taken if is_over(row.owner, row.expires_at)],
    )


def held(connection: Connection, *, pin: str | None, slot: tuple[str, str] | None) -> bool:
    """Tell whether somebody still holds a pin or a slot, which is known by its name and token."""
    is_sqlite = connection.dialect.name == "sqlite"
    pins, slots = schema.pins.c, schema.slots.c
    queries = []
    if pin is not None:
        queries.append(sa.select(pins.owner, pins.expires_at).where(pins.id == pin))
    if slot is not None:
        here = sa.and_(slots.name == slot[0], slots.token == slot[1])
        queries.append(sa.select(slots.owner, slots.expires_at).where(here))
    found = [row for query in queries for row in connection.execute(query)]
    now = clock(connection)
    return any(row.expires_at > now and not (is_sqlite and is_dead(row.owner)) for row in found)


def end(db: Database, now: str) -> int:
    """Remove the pins and slots that nobody holds any more, and return how many."""

    def work(connection: Connection) -> int:
        lock(connection)
        pins, slots = ended(db, connection, now)
        for pin in pins:
            connection.execute(schema.pins.delete().where(schema.pins.c.id == pin))
        for slot in slots:
            clear(connection, slot)
            connection.execute(schema.slots.delete().where(schema.slots.c.name == slot))
        return len(pins) + len(slots)

    return db.write(work)


def is_dead(owner: str) -> bool:
    """Tell whether the process that holds a lease was one of this machine, and has ended."""
    host, _, pid = owner.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
