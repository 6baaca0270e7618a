"""Store the position of each sink: the last commit delivered to it, its last failure, and the lease on it.

One process at a time has the lease on a sink. The position moves only after the sink has accepted a change.
"""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Conflict, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time, parse_time, read_clock
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.history.commits import Commit
from runnel.lake.leases.expiry import is_lease_owner_dead
from runnel.lake.leases.pins import current_lease_owner
from runnel.model.table_version import TableVersion

LEASE_SECONDS = 120.0
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 10.0, 600.0
_TABLE = schema.deliveries
_POSITION_COLUMNS = [column for column in _TABLE.columns if column.name not in ("holder", "held_until")]


@dataclass(frozen=True)
class SinkPosition:
    """The position of a sink. `delivered` is None before the first delivery, `location` if its table did not exist."""

    sink: str
    delivered: str | None = None  # id of the commit
    seq: int | None = None
    location: str | None = None
    content: str | None = None
    begun: str | None = None  # id of the commit whose whole table is being delivered
    epoch: int = 0
    rows: int | None = None
    at: str | None = None
    attempts: int = 0
    problem: str | None = None
    failing_since: str | None = None
    next_at: str | None = None

    def is_behind(self, newest: TableVersion | None) -> bool:
        """Return whether a version of its table has other rows than were delivered last."""
        if self.delivered is None:
            return newest is not None
        return self.content != (newest.content if newest else None)


@dataclass(frozen=True)
class SinkLease:
    """A lease on a sink: only the process that has it delivers to the sink."""

    db: Database
    sink: str
    token: str

    def read_position(self) -> SinkPosition:
        """Return the sink's current position."""
        return self.db.read(lambda connection: read_positions(connection).get(self.sink, SinkPosition(self.sink)))

    def record_delivery(self, commit: Commit, version: TableVersion | None, rows: int, epoch: int) -> None:
        """Record that a commit's version of the table is delivered; raise Conflict if the sink was reset meanwhile."""
        self._update_position(
            epoch,
            delivered=commit.id,
            seq=commit.seq,
            location=version.location if version else None,
            content=version.content if version else None,
            rows=rows,
            begun=None,
            attempts=0,
            problem=None,
            failing_since=None,
            next_at=None,
        )

    def record_start(self, commit: Commit) -> None:
        """Record that the full table of a commit is being delivered; after a crash the same commit is used again."""
        update = _TABLE.update().where(self._owner_condition()).values(begun=commit.id)
        self.db.write(lambda connection: connection.execute(update))

    def record_failure(self, problem: str) -> None:
        """Record a failure; the time until the next attempt doubles with each failure in a row."""

        def work(connection: Connection) -> None:
            row = connection.execute(sa.select(_TABLE).where(self._owner_condition())).first()
            if row is None:
                return  # another process has the lease by now
            now, attempts = read_clock(connection), row.attempts + 1
            pause = min(MIN_RETRY_SECONDS * 2 ** (attempts - 1), MAX_RETRY_SECONDS)
            values = {
                "attempts": attempts,
                "problem": problem,
                "failing_since": row.failing_since or now,
                "next_at": format_time(parse_time(now) + timedelta(seconds=pause)),
            }
            connection.execute(_TABLE.update().where(self._owner_condition()).values(values))

        self.db.write(work)

    def _update_position(self, epoch: int, **values: Any) -> None:
        def work(connection: Connection) -> bool:
            update = _TABLE.update().where(self._owner_condition(), _TABLE.c.epoch == epoch)
            return connection.execute(update.values(at=read_clock(connection), **values)).rowcount == 1

        if not self.db.write(work):
            what = f"another process now delivers to the sink `{self.sink}`, or the sink was reset"
            raise Conflict("SINK_LOST", what, fix="nothing: the next delivery continues from there")

    def _owner_condition(self) -> sa.ColumnElement[bool]:
        return sa.and_(_TABLE.c.sink == self.sink, _TABLE.c.holder == self.token)


def read_positions(connection: Connection) -> dict[str, SinkPosition]:
    """Return the position of every sink that a delivery was ever attempted to."""
    return {row.sink: SinkPosition(**row._asdict()) for row in connection.execute(sa.select(*_POSITION_COLUMNS))}


def update_location(db: Database, sink: str, version: TableVersion) -> None:
    """Record the new location of a sink's delivered rows: compaction rewrote them, and gc deletes the old version."""
    has_same_rows = sa.and_(_TABLE.c.sink == sink, _TABLE.c.content == version.content)
    update = _TABLE.update().where(has_same_rows).values(location=version.location)
    db.write(lambda connection: connection.execute(update))


def reset_position(db: Database, sink: str) -> None:
    """Reset a sink's position: everything is delivered again, in a new epoch."""

    def work(connection: Connection) -> None:
        lock_lake(connection)
        cleared = {"delivered": None, "seq": None, "location": None, "content": None, "rows": None, "problem": None}
        values = {
            **cleared,
            "begun": None,
            "attempts": 0,
            "failing_since": None,
            "next_at": None,
            "epoch": _TABLE.c.epoch + 1,
        }
        connection.execute(_TABLE.update().where(_TABLE.c.sink == sink).values(values))

    db.write(work)


@contextmanager
def lease_sink(db: Database, sink: str) -> Iterator[SinkLease | None]:
    """Hold the lease on a sink while the block runs; yield None if another process has it."""
    lease, stop = SinkLease(db, sink, f"{current_lease_owner()}:{uuid.uuid4().hex[:8]}"), threading.Event()
    if not db.write(lambda connection: _acquire_lease(connection, lease)):
        yield None
        return
    threading.Thread(target=_renew_lease, args=(lease, stop), name="runnel-sink", daemon=True).start()
    try:
        yield lease
    finally:
        stop.set()
        with suppress(RunnelError):  # the lease expires by itself
            release = _TABLE.update().where(lease._owner_condition()).values(holder=None, held_until=None)
            db.write(lambda connection: connection.execute(release))


def _acquire_lease(connection: Connection, lease: SinkLease) -> bool:
    lock_lake(connection)
    now = read_clock(connection)
    row = connection.execute(sa.select(_TABLE).where(_TABLE.c.sink == lease.sink)).first()
    values = {"holder": lease.token, "held_until": _lease_end(now)}
    if row is None:
        connection.execute(_TABLE.insert().values(sink=lease.sink, epoch=0, attempts=0, **values))
        return True
    # On SQLite all processes are on this machine, so a killed process is noticed at once.
    is_owner_dead = connection.dialect.name == "sqlite" and is_lease_owner_dead((row.holder or "").rpartition(":")[0])
    if row.holder in (None, lease.token) or row.held_until <= now or is_owner_dead:
        connection.execute(_TABLE.update().where(_TABLE.c.sink == lease.sink).values(values))
        return True
    return False


def _renew_lease(lease: SinkLease, stop: threading.Event) -> None:
    def work(connection: Connection) -> None:
        connection.execute(
            _TABLE.update().where(lease._owner_condition()).values(held_until=_lease_end(read_clock(connection)))
        )

    while not stop.wait(LEASE_SECONDS / 4):
        with suppress(Exception):  # the lease expires by itself, and `record_delivery` would raise
            lease.db.write(work)


def _lease_end(now: str) -> str:
    return format_time(parse_time(now) + timedelta(seconds=LEASE_SECONDS))
