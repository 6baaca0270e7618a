"""How far each sink has come: the last commit that it took, what is wrong since, and who delivers to it now.

A sink is held by one process at a time. The state moves only after the sink has accepted a change.
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
from runnel.lake.catalog.database import Database, clock, moment, stamp
from runnel.lake.catalog.lock import lock
from runnel.lake.history.commits import Commit, Version
from runnel.lake.leases.expiry import is_dead
from runnel.lake.leases.pins import owner

LEASE_SECONDS = 120.0
_SHORTEST_SECONDS, _LONGEST_SECONDS = 10.0, 600.0
_TABLE = schema.deliveries
_STATE = [column for column in _TABLE.columns if column.name not in ("holder", "held_until")]


@dataclass(frozen=True)
class Delivered:
    """The state of a sink. `delivered` is None before its first delivery, `location` where its table was missing."""

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

    def is_behind(self, newest: Version | None) -> bool:
        """Tell whether a version of its table has other rows than it was given."""
        if self.delivered is None:
            return newest is not None
        return self.content != (newest.content if newest else None)


@dataclass(frozen=True)
class Hold:
    """A sink that this process alone delivers to."""

    db: Database
    sink: str
    token: str

    def state(self) -> Delivered:
        """Return its state now."""
        return self.db.read(lambda connection: states(connection).get(self.sink, Delivered(self.sink)))

    def accept(self, commit: Commit, version: Version | None, rows: int, epoch: int) -> None:
        """Note that the sink has what a commit made of its table; refused where it was told to begin anew meanwhile."""
        self._move(
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

    def begin(self, commit: Commit) -> None:
        """Note that the whole table of a commit is going out: after a crash it is that commit's again."""
        begun = _TABLE.update().where(self._mine()).values(begun=commit.id)
        self.db.write(lambda connection: connection.execute(begun))

    def fail(self, problem: str) -> None:
        """Note what went wrong; each time in a row it is longer until it is tried with patience again."""

        def work(connection: Connection) -> None:
            row = connection.execute(sa.select(_TABLE).where(self._mine())).first()
            if row is None:
                return  # somebody else delivers by now, and knows better
            now, attempts = clock(connection), row.attempts + 1
            pause = min(_SHORTEST_SECONDS * 2 ** (attempts - 1), _LONGEST_SECONDS)
            values = {
                "attempts": attempts,
                "problem": problem,
                "failing_since": row.failing_since or now,
                "next_at": stamp(moment(now) + timedelta(seconds=pause)),
            }
            connection.execute(_TABLE.update().where(self._mine()).values(values))

        self.db.write(work)

    def _move(self, epoch: int, **values: Any) -> None:
        def work(connection: Connection) -> bool:
            mine = _TABLE.update().where(self._mine(), _TABLE.c.epoch == epoch)
            return connection.execute(mine.values(at=clock(connection), **values)).rowcount == 1

        if not self.db.write(work):
            what = f"another process delivers to the sink `{self.sink}` by now, or it was reset"
            raise Conflict("SINK_LOST", what, fix="nothing: the next delivery goes on from there")

    def _mine(self) -> sa.ColumnElement[bool]:
        return sa.and_(_TABLE.c.sink == self.sink, _TABLE.c.holder == self.token)


def states(connection: Connection) -> dict[str, Delivered]:
    """Return the state of every sink that was ever tried."""
    return {row.sink: Delivered(**row._asdict()) for row in connection.execute(sa.select(*_STATE))}


def follow(db: Database, sink: str, version: Version) -> None:
    """Note where the rows that a sink has are by now: a compaction wrote them anew, and gc takes the old version."""
    same = sa.and_(_TABLE.c.sink == sink, _TABLE.c.content == version.content)
    update = _TABLE.update().where(same).values(location=version.location)
    db.write(lambda connection: connection.execute(update))


def reset(db: Database, sink: str) -> None:
    """Let a sink begin anew: everything is delivered again, under new keys."""

    def work(connection: Connection) -> None:
        lock(connection)
        fresh = {"delivered": None, "seq": None, "location": None, "content": None, "rows": None, "problem": None}
        values = {
            **fresh,
            "begun": None,
            "attempts": 0,
            "failing_since": None,
            "next_at": None,
            "epoch": _TABLE.c.epoch + 1,
        }
        connection.execute(_TABLE.update().where(_TABLE.c.sink == sink).values(values))

    db.write(work)


@contextmanager
def held(db: Database, sink: str) -> Iterator[Hold | None]:
    """Hold a sink while the block runs; yield None where another process does."""
    hold, stop = Hold(db, sink, f"{owner()}:{uuid.uuid4().hex[:8]}"), threading.Event()
    if not db.write(lambda connection: _take(connection, hold)):
        yield None
        return
    threading.Thread(target=_renew, args=(hold, stop), name="runnel-sink", daemon=True).start()
    try:
        yield hold
    finally:
        stop.set()
        with suppress(RunnelError):  # it ends by itself
            free = _TABLE.update().where(hold._mine()).values(holder=None, held_until=None)
            db.write(lambda connection: connection.execute(free))


def _take(connection: Connection, hold: Hold) -> bool:
    lock(connection)
    now = clock(connection)
    row = connection.execute(sa.select(_TABLE).where(_TABLE.c.sink == hold.sink)).first()
    values = {"holder": hold.token, "held_until": _later(now)}
    if row is None:
        connection.execute(_TABLE.insert().values(sink=hold.sink, epoch=0, attempts=0, **values))
        return True
    # On SQLite everybody is on this machine, so that a process that was killed is known at once.
    is_dead_here = connection.dialect.name == "sqlite" and is_dead((row.holder or "").rpartition(":")[0])
    if row.holder in (None, hold.token) or row.held_until <= now or is_dead_here:
        connection.execute(_TABLE.update().where(_TABLE.c.sink == hold.sink).values(values))
        return True
    return False


def _renew(hold: Hold, stop: threading.Event) -> None:
    def work(connection: Connection) -> None:
        connection.execute(_TABLE.update().where(hold._mine()).values(held_until=_later(clock(connection))))

    while not stop.wait(LEASE_SECONDS / 4):
        with suppress(Exception):  # it ends by itself, and `accept` would say so
            hold.db.write(work)


def _later(now: str) -> str:
    return stamp(moment(now) + timedelta(seconds=LEASE_SECONDS))
