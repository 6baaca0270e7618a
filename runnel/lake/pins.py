"""Pins: what an open write or a long read uses is not swept while its pin lasts.

A pin is renewed by a thread of its own. A writer whose pin is gone, because its process was stopped for longer than
the pin lasts, can't publish any more: publish looks for it.
"""

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from sqlalchemy.engine import Connection

from runnel.errors import RunnelError
from runnel.lake import schema
from runnel.lake.database import Database, moment, stamp

LEASE_SECONDS = 600.0


@contextmanager
def pinned(db: Database, kind: str, commit_id: str | None = None) -> Iterator[str]:
    """Hold a pin of `kind` "write" or "read" for as long as the block runs, and yield its id."""
    pin, stop = uuid.uuid4().hex, threading.Event()

    def take(connection: Connection) -> None:
        now = db.now(connection)
        values = {"id": pin, "kind": kind, "owner": owner(), "commit_id": commit_id, "started_at": now}
        connection.execute(schema.pins.insert().values(**values, expires_at=_later(now)))

    db.write(take)
    threading.Thread(target=_renew, args=(db, pin, stop), name="runnel-pin", daemon=True).start()
    try:
        yield pin
    finally:
        stop.set()
        with suppress(RunnelError):  # it expires by itself, and publish would say so
            db.write(lambda connection: connection.execute(schema.pins.delete().where(schema.pins.c.id == pin)))


def owner() -> str:
    """Return who holds a lease: the machine and the process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _later(now: str) -> str:
    return stamp(moment(now) + timedelta(seconds=LEASE_SECONDS))


def _renew(db: Database, pin: str, stop: threading.Event) -> None:
    def renew(connection: Connection) -> None:
        later = _later(db.now(connection))
        connection.execute(schema.pins.update().where(schema.pins.c.id == pin).values(expires_at=later))

    while not stop.wait(LEASE_SECONDS / 4):
        with suppress(RunnelError):  # it expires by itself, and publish would say so
            db.write(renew)
