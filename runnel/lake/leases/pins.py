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

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Conflict, Mistake, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, moment, stamp
from runnel.lake.catalog.lock import lock

LEASE_SECONDS = 600.0


@contextmanager
def pinned(db: Database, kind: str, commit_id: str | None = None, *, alone: bool = False) -> Iterator[str]:
    """Hold a pin of `kind` "write", "read" or "gc" for as long as the block runs, and yield its id.

    A commit that is pinned must still be retained. `alone` refuses where another pin of this kind is open.
    """
    pin, stop = uuid.uuid4().hex, threading.Event()

    def take(connection: Connection) -> None:
        lock(connection)  # in one order with gc: what it lists or expires it does before this pin starts, or sees it
        if connection.execute(sa.select(schema.pins.c.id).where(schema.pins.c.id == pin)).first():
            return  # an earlier attempt took effect, and its acknowledgement was lost
        now = db.now(connection)
        if commit_id is not None:
            _check_retained(connection, commit_id)
        if alone:
            _check_alone(connection, kind, now)
        values = {"id": pin, "kind": kind, "owner": owner(), "commit_id": commit_id, "started_at": now}
        connection.execute(schema.pins.insert().values(**values, expires_at=later(now)))

    db.write(take)
    renewing(db, schema.pins, schema.pins.c.id == pin, stop)
    try:
        yield pin
    finally:
        stop.set()
        with suppress(RunnelError):  # it expires by itself, and publish would say so
            db.write(lambda connection: connection.execute(schema.pins.delete().where(schema.pins.c.id == pin)))


def owner() -> str:
    """Return who holds a lease: the machine and the process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _check_retained(connection: Connection, commit_id: str) -> None:
    query = sa.select(schema.commits.c.expired_at).where(schema.commits.c.id == commit_id)
    found = connection.execute(query).first()
    if found is None or found.expired_at:
        raise Mistake(
            "REF_EXPIRED", f"the contents of commit {commit_id} are gone: its retention ended", fix="choose a newer one"
        )


def _check_alone(connection: Connection, kind: str, now: str) -> None:
    pins = schema.pins.c
    query = sa.select(pins.owner, pins.started_at).where(pins.kind == kind, pins.expires_at > now)
    found = connection.execute(query).first()
    if found is not None:
        what = f"another {kind} is under way: process {found.owner}, since {found.started_at}"
        raise Conflict(f"{kind.upper()}_RUNNING", what, fix="wait until it has ended, then repeat")


def later(now: str) -> str:
    """Return when a lease that starts or is renewed now ends."""
    return stamp(moment(now) + timedelta(seconds=LEASE_SECONDS))


def renewing(db: Database, table: sa.Table, row: sa.ColumnElement[bool], stop: threading.Event) -> None:
    """Start a thread that renews a lease, a row of pins or slots, until it is told to stop."""

    def renew(connection: Connection) -> None:
        connection.execute(table.update().where(row).values(expires_at=later(db.now(connection))))

    def work() -> None:
        while not stop.wait(LEASE_SECONDS / 4):
            with suppress(Exception):  # it expires by itself, and publish would say so; the thread goes on
                db.write(renew)

    threading.Thread(target=work, name="runnel-lease", daemon=True).start()
