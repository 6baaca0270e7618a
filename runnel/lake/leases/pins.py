"""Protect the files of an open write or a long read from garbage collection, with leases called pins.

A background thread renews each pin. A writer whose pin has expired, because its process was suspended for too long,
can't publish any more: the publishing transaction checks the pin.
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
from runnel.lake.catalog.database import Database, format_time, parse_time
from runnel.lake.catalog.lock import lock_lake

LEASE_SECONDS = 600.0


@contextmanager
def acquire_pin(db: Database, kind: str, commit_id: str | None = None, *, exclusive: bool = False) -> Iterator[str]:
    """Hold a pin of `kind` "write", "read" or "gc" for as long as the block runs, and yield its id.

    A pinned commit must still be retained. With `exclusive`, raise if another pin of this kind is open.
    """
    pin, stop_renewal = uuid.uuid4().hex, threading.Event()

    def insert_pin(connection: Connection) -> None:
        lock_lake(connection)  # serialized with gc: it lists and expires files before this pin starts, or sees the pin
        if connection.execute(sa.select(schema.pins.c.id).where(schema.pins.c.id == pin)).first():
            return  # an earlier attempt took effect, and its acknowledgement was lost
        now = db.now(connection)
        if commit_id is not None:
            _check_retained(connection, commit_id)
        if exclusive:
            _check_exclusive(connection, kind, now)
        values = {"id": pin, "kind": kind, "owner": current_lease_owner(), "commit_id": commit_id, "started_at": now}
        connection.execute(schema.pins.insert().values(**values, expires_at=lease_expires_at(now)))

    db.write(insert_pin)
    start_lease_renewal(db, schema.pins, schema.pins.c.id == pin, stop_renewal)
    try:
        yield pin
    finally:
        stop_renewal.set()
        with suppress(RunnelError):  # it expires by itself, and publish would say so
            db.write(lambda connection: connection.execute(schema.pins.delete().where(schema.pins.c.id == pin)))


def current_lease_owner() -> str:
    """Return the name under which this process holds leases: host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _check_retained(connection: Connection, commit_id: str) -> None:
    query = sa.select(schema.commits.c.expired_at).where(schema.commits.c.id == commit_id)
    commit = connection.execute(query).first()
    if commit is None or commit.expired_at:
        raise Mistake(
            "REF_EXPIRED", f"the contents of commit {commit_id} are gone: its retention ended", fix="choose a newer one"
        )


def _check_exclusive(connection: Connection, kind: str, now: str) -> None:
    columns = schema.pins.c
    query = sa.select(columns.owner, columns.started_at).where(columns.kind == kind, columns.expires_at > now)
    other_pin = connection.execute(query).first()
    if other_pin is not None:
        what = f"another {kind} is running: process {other_pin.owner}, since {other_pin.started_at}"
        raise Conflict(f"{kind.upper()}_RUNNING", what, fix="wait until it has ended, then repeat")


def lease_expires_at(now: str) -> str:
    """Return when a lease that is created or renewed at `now` expires."""
    return format_time(parse_time(now) + timedelta(seconds=LEASE_SECONDS))


def start_lease_renewal(db: Database, table: sa.Table, row: sa.ColumnElement[bool], stop: threading.Event) -> None:
    """Start a thread that renews a lease (a row of pins, slots or streams) until `stop` is set."""

    def renew(connection: Connection) -> None:
        connection.execute(table.update().where(row).values(expires_at=lease_expires_at(db.now(connection))))

    def renew_until_stopped() -> None:
        while not stop.wait(LEASE_SECONDS / 4):
            with suppress(Exception):  # it expires by itself, and publish would say so; the thread goes on
                db.write(renew)

    threading.Thread(target=renew_until_stopped, name="runnel-lease", daemon=True).start()
