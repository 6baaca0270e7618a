"""Streams: where each is on a branch, who runs it, and what its batches did.

A stream has lives: each starts with nothing, has a checkpoint of its own, and replaces what the one before made. It is
run by one process at a time. A batch is known by Spark's name for the checkpoint's query and by its number there, and
that is written in the transaction that publishes it.
"""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Conflict, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, moment, stamp
from runnel.lake.catalog.lock import lock
from runnel.lake.flow_state.append_log import Tape
from runnel.lake.leases.pins import later, owner, renewing
from runnel.names import TableName

_STREAMS, _BATCHES = schema.streams, schema.batches
_FOLDER = "_streams"
_ours: set[str] = set()  # tokens of the streams that this process holds


@dataclass(frozen=True)
class Stream:
    """A stream on a branch. `state` is idle, running, waiting or failed, since `since`."""

    branch: str
    table: TableName
    life: str
    query: str | None
    code: str
    tapes: Mapping[TableName, Tape]
    begun_at: str
    state: str
    problem: str | None
    since: str
    owner: str | None = None

    @property
    def is_task(self) -> bool:
        """Tell whether it is a task; else a source that is read on and on, of which only its state is known."""
        return bool(self.tapes) or self.query is not None


@dataclass(frozen=True)
class Batch:
    """A batch that is about to be published. `token` says who runs the stream."""

    branch: str
    table: TableName
    token: str
    query: str
    epoch: int
    detail: Mapping[str, Any] = field(default_factory=dict)


def streams(connection: Connection, branch: str | None = None) -> dict[tuple[str, TableName], Stream]:
    """Return all streams, or those of a branch."""
    query = sa.select(_STREAMS)
    rows = connection.execute(query if branch is None else query.where(_STREAMS.c.branch == branch))
    return {(found.branch, found.table): found for found in map(_stream, rows)}


class Hold:
    """A stream that this process alone runs."""

    def __init__(self, db: Database, branch: str, table: TableName, token: str) -> None:
        self.db = db
        self.branch = branch
        self.table = table
        self.token = token

    def stream(self) -> Stream:
        """Return it as it is now."""
        return _stream(self.db.read(lambda connection: connection.execute(sa.select(_STREAMS).where(self._mine)).one()))

    def reached(self, tapes: Mapping[TableName, Tape], before: Mapping[TableName, Tape]) -> bool:
        """Note how far its tapes reach, which were `before`; False where an erasure has replaced those meanwhile."""

        def work(connection: Connection) -> bool:
            text = connection.execute(sa.select(_STREAMS.c.tapes).where(self._mine)).scalar()
            if text is None:
                raise _lost(self.table)
            if _unpacked(text) != before:
                return _unpacked(text) == tapes  # an earlier attempt took effect
            same = sa.and_(self._mine, _STREAMS.c.tapes == text)
            return connection.execute(_STREAMS.update().where(same).values(tapes=_packed(tapes))).rowcount == 1

        return self.db.write(work)

    def started(self, query: str, code: str) -> None:
        """Note that Spark runs it, by which name, and with which code."""
        self._set(query=query, code=code, state="running", problem=None)

    def told(self, state: str, problem: str | None = None) -> None:
        """Note how it is."""
        self._set(state=state, problem=problem)

    @property
    def _mine(self) -> "sa.ColumnElement[bool]":
        return sa.and_(_at(self.branch, self.table), _STREAMS.c.token == self.token)

    def _set(self, **values: object) -> None:
        def work(connection: Connection) -> int:
            if "state" in values:
                values["since"] = self.db.now(connection)
            return connection.execute(_STREAMS.update().where(self._mine).values(**values)).rowcount

        if not self.db.write(work):
            raise _lost(self.table)


@contextmanager
def hold(db: Database, branch: str, table: TableName, code: str) -> Iterator[Hold]:
    """Hold a stream for as long as the block runs, making it known where it is not; refuse where another runs it."""
    token, stop = uuid.uuid4().hex, threading.Event()
    held = Hold(db, branch, table, token)
    _ours.add(token)
    try:
        db.write(lambda connection: _take(db, connection, branch, table, code, token))
        renewing(db, _STREAMS, held._mine, stop)
        yield held
    finally:
        stop.set()
        _ours.discard(token)
        free = {"token": None, "owner": None, "expires_at": None}
        with suppress(RunnelError):  # it expires by itself
            db.write(lambda connection: connection.execute(_STREAMS.update().where(held._mine).values(**free)))


def reset(db: Database, branch: str, table: TableName) -> Stream | None:
    """Forget a stream, so that it begins anew, and return what it was; None where there was none."""

    def work(connection: Connection) -> Stream | None:
        lock(connection)
        found = connection.execute(sa.select(_STREAMS).where(_at(branch, table))).first()
        if found is not None:
            _refuse_held(db, connection, found)
            connection.execute(_STREAMS.delete().where(_at(branch, table)))
        return _stream(found) if found is not None else None

    return db.write(work)


def forget_unbegun(db: Database, branch: str, table: TableName) -> None:
    """Forget a stream of which Spark has never run anything, and which nobody holds."""
    new = sa.and_(_at(branch, table), _STREAMS.c.query.is_(None), _STREAMS.c.token.is_(None))
    if db.read(lambda connection: connection.execute(sa.select(_STREAMS.c.life).where(new)).first()) is not None:
        db.write(lambda connection: connection.execute(_STREAMS.delete().where(new)))


def is_done(db: Database, query: str, epoch: int) -> bool:
    """Tell whether a batch was published."""
    here = (_BATCHES.c.query == query, _BATCHES.c.epoch == epoch)
    return db.read(lambda connection: connection.execute(sa.select(_BATCHES.c.at).where(*here)).first()) is not None


def last_epoch(db: Database, query: str | None) -> int | None:
    """Return the newest batch of a query."""
    newest = sa.select(sa.func.max(_BATCHES.c.epoch)).where(_BATCHES.c.query == query)
    return db.read(lambda connection: connection.execute(newest).scalar()) if query is not None else None


def publish(connection: Connection, batch: Batch, commit: str | None, now: str) -> None:
    """Write down a batch, in the transaction that publishes it; raise where another runs its stream by now."""
    mine = sa.and_(_at(batch.branch, batch.table), _STREAMS.c.token == batch.token)
    if connection.execute(sa.select(_STREAMS.c.life).where(mine)).first() is None:
        raise _lost(batch.table)
    values = {"query": batch.query, "epoch": batch.epoch, "branch": batch.branch, "table_name": str(batch.table)}
    connection.execute(_BATCHES.insert().values(**values, commit_id=commit, at=now, detail=json.dumps(batch.detail)))


def note(db: Database, batch: Batch) -> None:
    """Write down a batch that changed nothing."""

    def work(connection: Connection) -> None:
        here = (_BATCHES.c.query == batch.query, _BATCHES.c.epoch == batch.epoch)
        if connection.execute(sa.select(_BATCHES.c.at).where(*here)).first() is None:
            publish(connection, batch, None, db.now(connection))

    db.write(work)


def told(db: Database, branch: str, table: TableName, state: str, problem: str | None) -> None:
    """Note how a stream is, or a source that is read on and on, whoever holds it."""

    def work(connection: Connection) -> None:
        now, by = db.now(connection), None if state == "idle" else owner()
        values: dict[str, Any] = {"state": state, "problem": problem, "since": now}
        values["owner"] = sa.case((_STREAMS.c.token.is_(None), by), else_=_STREAMS.c.owner)
        if connection.execute(_STREAMS.update().where(_at(branch, table)).values(**values)).rowcount:
            return
        known = {"branch": branch, "table_name": str(table), "life": uuid.uuid4().hex, "code": "", "tapes": "{}"}
        connection.execute(_STREAMS.insert().values(**known, **values | {"owner": by}, begun_at=now))

    db.write(work)


def measured(db: Database, branch: str, table: TableName, detail: Mapping[str, Any]) -> None:
    """Write down what one intake of a source took in."""

    def work(connection: Connection) -> None:
        name = f"intake:{uuid.uuid5(uuid.NAMESPACE_URL, f'{branch} {table}').hex[:28]}"
        newest = sa.select(sa.func.max(_BATCHES.c.epoch)).where(_BATCHES.c.query == name)
        epoch = (connection.execute(newest).scalar() or 0) + 1
        values = {"query": name, "epoch": epoch, "branch": branch, "table_name": str(table)}
        connection.execute(_BATCHES.insert().values(**values, at=db.now(connection), detail=json.dumps(detail)))

    db.write(work)


def add_detail(db: Database, query: str, epoch: int, more: Mapping[str, Any]) -> None:
    """Add what is known of a batch by now to what was written down."""

    def work(connection: Connection) -> None:
        here = sa.and_(_BATCHES.c.query == query, _BATCHES.c.epoch == epoch)
        text = connection.execute(sa.select(_BATCHES.c.detail).where(here)).scalar()
        if text is not None:
            detail = json.dumps({**json.loads(text), **more})
            connection.execute(_BATCHES.update().where(here).values(detail=detail))

    db.write(work)


def forget_old(db: Database, days: int = 7) -> None:
    """Forget what batches did long ago; the last of each query are kept, since a restart asks for them."""

    def work(connection: Connection) -> None:
        limit = stamp(moment(db.now(connection)) - timedelta(days=days))
        newest = sa.select(_BATCHES.c.query, sa.func.max(_BATCHES.c.epoch).label("last")).group_by(_BATCHES.c.query)
        for query, last in connection.execute(newest).all():
            old = (_BATCHES.c.query == query, _BATCHES.c.epoch < last - 100, _BATCHES.c.at < limit)
            connection.execute(_BATCHES.delete().where(*old))

    db.write(work)


def checkpoint(warehouse: str, life: str) -> str:
    """Return the folder in which Spark keeps where a life of a stream is, and what it remembers."""
    return f"{warehouse}/{_FOLDER}/{life}"


def checkpoints(db: Database, warehouse: str) -> tuple[str, ...]:
    """Return the folders of all streams that there are, each with a slash at its end."""
    lives = db.read(lambda connection: connection.execute(sa.select(_STREAMS.c.life)).scalars().all())
    return tuple(f"{checkpoint(warehouse, life)}/" for life in lives)


def _take(db: Database, connection: Connection, branch: str, table: TableName, code: str, token: str) -> None:
    lock(connection)
    now = db.now(connection)
    lease = {"token": token, "owner": owner(), "expires_at": later(now)}
    found = connection.execute(sa.select(_STREAMS).where(_at(branch, table))).first()
    if found is not None and found.token == token:
        return  # an earlier attempt took effect, and its acknowledgement was lost
    if found is not None:
        _refuse_held(db, connection, found)
        connection.execute(_STREAMS.update().where(_at(branch, table)).values(**lease))
        return
    values = {"branch": branch, "table_name": str(table), "life": uuid.uuid4().hex, "code": code, "tapes": "{}"}
    connection.execute(_STREAMS.insert().values(**values, begun_at=now, state="idle", since=now, **lease))


def _refuse_held(db: Database, connection: Connection, found: Row[Any]) -> None:
    from runnel.lake.leases.expiry import is_dead

    # Held by a process with our number, but not by us: it has ended, or could not say that it let go.
    is_left = found.owner == owner() and found.token not in _ours
    is_over = found.token is None or (found.expires_at or "") <= db.now(connection) or is_dead(found.owner)
    if not is_over and not is_left:
        what = f"the stream of `{found.table_name}` on `{found.branch}` is run by process {found.owner}"
        raise Conflict("STREAM_RUNNING", what, fix="stop that one first, with Ctrl-C")


def _at(branch: str, table: TableName) -> "sa.ColumnElement[bool]":
    return sa.and_(_STREAMS.c.branch == branch, _STREAMS.c.table_name == str(table))


def _stream(row: Row[Any]) -> Stream:
    known = (
        row.life,
        row.query,
        row.code,
        _unpacked(row.tapes),
        row.begun_at,
        row.state,
        row.problem,
        row.since,
        row.owner,
    )
    return Stream(row.branch, TableName.parse(row.table_name), *known)


def _unpacked(text: str) -> dict[TableName, Tape]:
    return {TableName.parse(name): Tape(**tape) for name, tape in json.loads(text).items()}


def _packed(tapes: Mapping[TableName, Tape]) -> str:
    return json.dumps({str(table): vars(tape) for table, tape in tapes.items()})


def _lost(table: TableName) -> RunnelError:
    what = f"the stream of `{table}` was not renewed for so long that it may be run by another"
    return RunnelError("STREAM_LEASE_LOST", what, fix="start it again")
