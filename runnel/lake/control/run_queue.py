"""The queue of runs: what is to be run, who runs it, and how it ended.

A run is claimed with a token, and the claim is renewed while it goes on. Who lost a claim, because it was stopped for
too long, publishes nothing: the transaction that publishes names the token. The same transaction notes the commit
here, so that a run whose worker died right after it is known to have succeeded, and is not run again.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Cancelled, Mistake, RunnelError, nearest
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, moment, stamp
from runnel.lake.catalog.lock import lock
from runnel.names import new_run_id, shown
from runnel.telemetry import tracing

QUEUED, RUNNING, CANCELLED, SUCCEEDED, FAILED = "queued", "running", "cancelled", "succeeded", "failed"
OPEN = (QUEUED, RUNNING)
LOST = "lost"  # only shown: running, by a worker that is not heard of
PAUSED = "paused"  # a backfill whose chunks wait for a person
BACKFILL = "backfill/"  # what the cause of its chunks starts with
RENEW_SECONDS = 3.0
CLAIM_SECONDS = 10.0  # a claim that is not renewed for so long is over
_WAITS = (5.0, 30.0, 120.0)  # before the second attempt, the third, and so on


@dataclass(frozen=True)
class Entry:
    """What somebody wants to have run. Of entries with the same `slot` only the first is taken."""

    wish: Mapping[str, Any]
    author: str
    branch: str = "main"
    kind: str = "run"
    cause: str = "user"
    slot: str | None = None
    priority: int = 0
    retries: int = 2
    timeout_seconds: int | None = None
    not_before: str = ""
    id: str = field(default_factory=lambda: new_run_id(datetime.now(UTC)))


@dataclass(frozen=True)
class Queued:
    """An entry of the queue as it is now. `commit` is None until it has published."""

    id: str
    branch: str
    kind: str
    wish: Mapping[str, Any]
    cause: str
    slot: str | None
    author: str
    priority: int
    state: str
    queued_at: str
    attempt: int
    retries: int
    timeout_seconds: int | None
    worker: str | None = None
    token: str | None = field(default=None, repr=False)
    renewed_at: str | None = None
    started_at: str | None = None
    cancel_at: str | None = None
    commit: str | None = None
    ended_at: str | None = None
    outcome: Mapping[str, Any] | None = None
    not_before: str = ""

    @property
    def run(self) -> str:
        """Return the id of the run that is its last attempt."""
        return self.id if self.attempt <= 1 else f"{self.id}-{self.attempt}"

    @property
    def claim(self) -> tuple[str, str]:
        """Return what a draft names so that it is published only while the claim is held."""
        return self.id, self.token or ""

    @property
    def waited_seconds(self) -> float:
        """Return how long its last attempt waited to be claimed; the pause after a failure does not count."""
        if self.started_at is None:
            return 0.0
        since = max(self.queued_at, self.not_before)
        return max((moment(self.started_at) - moment(since)).total_seconds(), 0.0)

    @property
    def is_open(self) -> bool:
        """Tell whether something will still become of it."""
        return self.state in (*OPEN, LOST)  # one whose worker is lost is run again, or is ended


def add(connection: Connection, db: Database, entries: Iterable[Entry]) -> list[str]:
    """Queue entries and return the ids of those that were taken; a slot that was queued before is left out."""
    found = list(entries)
    slots = [entry.slot for entry in found if entry.slot is not None]
    known = _known_slots(connection, slots)
    now, rows, taken = db.now(connection), list[dict[str, Any]](), list[str]()
    for entry in found:
        if entry.slot is not None and entry.slot in known:
            continue
        known.add(entry.slot or "")
        rows.append(_values(entry, stamp(moment(now) + timedelta(microseconds=len(rows)))))  # in this order
        taken.append(entry.id)
    if rows:
        connection.execute(schema.queue.insert(), rows)
    return taken


def submit(db: Database, entry: Entry) -> str | None:
    """Queue one entry and return its id; None where its slot was queued before."""

    def work(connection: Connection) -> str | None:
        if connection.execute(sa.select(schema.queue.c.id).where(schema.queue.c.id == entry.id)).first():
            return entry.id  # an earlier attempt took effect, and its acknowledgement was lost
        taken = add(connection, db, [entry])
        return taken[0] if taken else None

    return db.write(work)


def claim(db: Database, worker: str, kinds: Iterable[str] = ("run",)) -> Queued | None:
    """Claim what should be run next, or None. Of a cause that is no user only one entry is run at a time."""
    columns, wanted = schema.queue.c, tuple(kinds)

    def work(connection: Connection) -> Queued | None:
        lock(connection)  # else two workers could each claim an entry of one cause
        now = db.now(connection)
        busy = sa.select(columns.cause).where(columns.state == RUNNING, columns.cause != "user")
        paused = sa.select(cause_of(schema.backfills.c.id)).where(schema.backfills.c.state == PAUSED)
        ready = sa.select(columns.id).where(columns.state == QUEUED, columns.kind.in_(wanted), _is_time(now))
        order = (columns.priority.desc(), columns.queued_at, columns.id)
        free = ready.where(columns.cause.not_in(busy), columns.cause.not_in(paused))
        found = connection.execute(free.order_by(*order).limit(1)).scalar()
        if found is None:
            return None
        token = secrets.token_hex(16)
        values = {"state": RUNNING, "worker": worker, "token": token, "renewed_at": now, "started_at": now}
        here = sa.and_(columns.id == found, columns.state == QUEUED)
        connection.execute(schema.queue.update().where(here).values(**values, attempt=columns.attempt + 1))
        return _one(connection, found)

    if db.read(lambda connection: connection.execute(_ready(wanted)).first()) is None:
        return None  # nothing to write: a look that locks nothing
    return db.write(work)


def renew(db: Database, claims: Iterable[tuple[str, str]]) -> None:
    """Renew claims, those that are still held."""
    mine = tuple(claims)

    def work(connection: Connection) -> None:
        now = db.now(connection)
        for claim in mine:
            connection.execute(schema.queue.update().where(_is_held(claim)).values(renewed_at=now))

    if mine:
        db.write(work)


def held(connection: Connection, claims: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """Return the entries of claims that are still held, each with when somebody asked to stop it, or None."""
    columns = schema.queue.c
    rows = [connection.execute(sa.select(columns.id, columns.cancel_at).where(_is_held(claim))) for claim in claims]
    return {row.id: row.cancel_at for found in rows for row in found}


def finish(
    db: Database,
    claim: tuple[str, str],
    state: str,
    outcome: Mapping[str, Any],
    *,
    again: bool = False,
    counts: bool = True,
) -> str | None:
    """Note how an entry ended, and return its state then; None where the claim was lost.

    `again`: it may go better next time, so it is queued once more where its retries allow it, or in any case where
    this attempt does not count. What has published has succeeded, whatever went wrong after that.
    """

    def work(connection: Connection) -> str | None:
        if connection.execute(sa.select(schema.queue.c.id).where(_is_held(claim)).with_for_update()).first() is None:
            return None
        found = _one(connection, claim[0])
        _mark(connection, db, found, state)  # a full disk may have kept the run from saying so itself
        if found.commit is None:
            return _end(connection, db, found, state, outcome, again=again, counts=counts)
        return _end(connection, db, found, SUCCEEDED, {**outcome, "commit": found.commit}, again=False)

    return db.write(work)


def give_back(db: Database, worker: str) -> list[Queued]:
    """Queue again what a worker interrupts because it was told to stop; that does not count as an attempt."""
    what = "it was interrupted, because its worker was told to stop, and is queued again"
    error = {"code": "RUN_INTERRUPTED", "what": what, "at": None, "fix": None}
    return _release(db, [schema.queue.c.worker == worker], {"error": error}, counts=False)


def release(db: Database, *, worker: str | None = None, stale: Iterable[tuple[str, str]] = ()) -> list[Queued]:
    """End the claims of a worker that has died, or those that were not renewed; return the entries as they are then.

    What was published has succeeded; what was to be stopped is; the rest is run again, as often as its retries allow.
    """
    columns = schema.queue.c
    lost = [sa.and_(columns.id == entry, columns.renewed_at == renewed_at) for entry, renewed_at in stale]
    lost += [columns.worker == worker] if worker is not None else []
    outcome = {"error": {"code": "RUN_LOST", "what": "the worker that ran it went away", "at": None, "fix": None}}
    return _release(db, lost, outcome) if lost else []


def _release(
    db: Database, lost: "list[sa.ColumnElement[bool]]", outcome: Mapping[str, Any], *, counts: bool = True
) -> list[Queued]:
    columns = schema.queue.c

    def work(connection: Connection) -> list[Queued]:
        query = sa.select(columns.id).where(columns.state == RUNNING, sa.or_(*lost)).with_for_update(skip_locked=True)
        found = [_one(connection, entry) for entry in connection.execute(query).scalars().all()]
        for one in found:
            _mark(connection, db, one, "lost")
            if one.commit is not None:
                _end(connection, db, one, SUCCEEDED, {"commit": one.commit}, again=False)
            else:
                state, again = (CANCELLED, False) if one.cancel_at else (FAILED, True)
                _end(connection, db, one, state, outcome, again=again, counts=counts)
        return [_one(connection, one.id) for one in found]

    return db.write(work)


def cancel(db: Database, entry: str) -> Queued:
    """Ask to stop an entry: one that waits is cancelled at once, one that runs when its worker hears of it."""
    columns = schema.queue.c

    def work(connection: Connection) -> Queued:
        now, found = db.now(connection), find(connection, entry)
        waits = schema.queue.update().where(columns.id == found.id, columns.state == QUEUED)
        if not connection.execute(waits.values(state=CANCELLED, cancel_at=now, ended_at=now)).rowcount:
            runs = schema.queue.update().where(columns.id == found.id, columns.state == RUNNING)
            connection.execute(runs.where(columns.cancel_at.is_(None)).values(cancel_at=now))
        return _one(connection, found.id)

    return db.write(work)


def hold(connection: Connection, claim: tuple[str, str], commit_id: str) -> None:
    """Note that an entry is published by this transaction; raise where its claim was lost, or it is to stop."""
    columns = schema.queue.c
    mine = _is_held(claim)
    here = sa.and_(mine, columns.cancel_at.is_(None))
    if connection.execute(schema.queue.update().where(here).values(commit_id=commit_id)).rowcount == 1:
        return
    if connection.execute(sa.select(columns.id).where(mine)).first() is not None:
        raise Cancelled
    what = f"run {claim[0]} was not heard of for so long that another worker has taken it over"
    raise RunnelError("PUBLISH_CLAIM_LOST", what, fix="nothing: the other one publishes it")


def find(connection: Connection, text: str) -> Queued:
    """Return the entry with this id, or with the one id that starts so; an attempt is found by its own id, too."""
    columns = schema.queue.c
    for name in (text, text.rpartition("-")[0]):
        row = connection.execute(sa.select(schema.queue).where(columns.id == name)).first() if name else None
        if row is not None:
            return _queued(row)
    starts = columns.id.startswith(text, autoescape=True)
    rows = connection.execute(sa.select(schema.queue).where(starts).limit(2)).all() if text else []
    if len(rows) == 1:
        return _queued(rows[0])
    if rows:
        raise Mistake("RUN_AMBIGUOUS", f"several runs start with `{text}`", fix="write more of its characters")
    known = connection.execute(sa.select(columns.id).order_by(columns.queued_at.desc()).limit(100)).scalars()
    close = nearest(text, known)
    what = f"there is no run {shown(text)}" + (f"; close: `{close}`" if close else "")
    raise Mistake("RUN_UNKNOWN", what, fix="`runnel runs` lists them")


def some(connection: Connection, names: Iterable[str]) -> dict[str, Queued]:
    """Return the entries of these ids that there are."""
    wanted, found = list(names), dict[str, Queued]()
    for start in range(0, len(wanted), 500):
        query = sa.select(schema.queue).where(schema.queue.c.id.in_(wanted[start : start + 500]))
        found |= {row.id: _queued(row) for row in connection.execute(query)}
    return found


def in_slot(connection: Connection, slot: str) -> Queued:
    """Return the entry that was taken for a slot."""
    return _queued(connection.execute(sa.select(schema.queue).where(schema.queue.c.slot == slot)).one())


def entries(
    connection: Connection,
    *,
    states: Iterable[str] = (),
    cause: str | None = None,
    before: str | None = None,
    limit: int | None = None,
) -> list[Queued]:
    """Return entries, newest first. `before` is the id of one: only older ones are returned."""
    columns = schema.queue.c
    query = sa.select(schema.queue).order_by(columns.id.desc()).limit(limit)
    if wanted := tuple(states):
        query = query.where(columns.state.in_(wanted))
    if cause is not None:
        query = query.where(columns.cause == cause)
    if before is not None:
        query = query.where(columns.id < before)
    return [_queued(row) for row in connection.execute(query)]


def ended(connection: Connection, since: str, limit: int) -> list[Queued]:
    """Return the runs that ended since a time, the oldest first."""
    columns = schema.queue.c
    here = sa.and_(columns.ended_at >= since, columns.kind == "run")
    query = sa.select(schema.queue).where(here).order_by(columns.ended_at, columns.id).limit(limit)
    return [_queued(row) for row in connection.execute(query)]


def forget_old(db: Database, seconds: float) -> int:
    """Forget what ended long ago, with its events; return how many entries."""
    columns = schema.queue.c

    def work(connection: Connection) -> int:
        until = stamp(moment(db.now(connection)) - timedelta(seconds=seconds))
        old = sa.and_(columns.ended_at.is_not(None), columns.ended_at < until)
        gone = sa.select(columns.id).where(old)
        connection.execute(schema.events.delete().where(schema.events.c.run.in_(gone)))
        return connection.execute(schema.queue.delete().where(old)).rowcount

    return db.write(work)


def _end(
    connection: Connection,
    db: Database,
    one: Queued,
    state: str,
    outcome: Mapping[str, Any],
    *,
    again: bool,
    counts: bool = True,
) -> str:
    now = db.now(connection)
    values: dict[str, Any] = {"token": None, "outcome": json.dumps(dict(outcome), sort_keys=True, default=str)}
    retries = one.retries if counts else one.retries + 1
    if state == FAILED and again and one.attempt <= retries and one.cancel_at is None:
        wait = _WAITS[min(one.attempt, len(_WAITS)) - 1]
        values |= {"state": QUEUED, "not_before": stamp(moment(now) + timedelta(seconds=wait)), "worker": None}
        values["retries"] = retries
    else:
        values |= {"state": state, "ended_at": now}
    connection.execute(schema.queue.update().where(schema.queue.c.id == one.id).values(values))
    if one.cause.startswith(BACKFILL) and values["state"] in (FAILED, CANCELLED):
        here = cause_of(schema.backfills.c.id) == one.cause
        connection.execute(schema.backfills.update().where(here).values(state=PAUSED))  # later chunks wait
    return str(values["state"])


def cause_of(backfill: "sa.Column[Any] | str") -> Any:
    """Return how the queue names a backfill, of its id or of a column of ids."""
    return BACKFILL + backfill


def _mark(connection: Connection, db: Database, one: Queued, state: str) -> None:
    """Let the record of the run not say that it is running."""
    runs = schema.runs
    here = sa.and_(runs.c.id == one.run, runs.c.state == RUNNING)
    values: dict[str, Any] = {"state": state, "ended_at": db.now(connection)}
    if one.commit is not None:
        values |= {"state": SUCCEEDED, "commit_id": one.commit}
    connection.execute(runs.update().where(here).values(values))


def _known_slots(connection: Connection, slots: list[str]) -> set[str]:
    column, found = schema.queue.c.slot, set[str]()
    for start in range(0, len(slots), 500):
        query = sa.select(column).where(column.in_(slots[start : start + 500]))
        found.update(connection.execute(query).scalars())
    return found


def _values(entry: Entry, now: str) -> dict[str, Any]:
    trace = tracing.current()  # of the request that it comes from, say
    wish = {**entry.wish, "trace": trace} if trace else dict(entry.wish)
    return {
        "id": entry.id,
        "branch": entry.branch,
        "kind": entry.kind,
        "wish": json.dumps(wish, sort_keys=True, default=str),
        "cause": entry.cause,
        "slot": entry.slot,
        "author": entry.author,
        "priority": entry.priority,
        "state": QUEUED,
        "queued_at": now,
        "not_before": entry.not_before,
        "attempt": 0,
        "retries": entry.retries,
        "timeout_seconds": entry.timeout_seconds,
    }


def _is_held(claim: tuple[str, str]) -> "sa.ColumnElement[bool]":
    columns = schema.queue.c
    return sa.and_(columns.id == claim[0], columns.token == claim[1], columns.state == RUNNING)


def _is_time(now: str) -> "sa.ColumnElement[bool]":
    """Tell whether an entry has waited long enough; one that has to wait for very long met a clock that jumped."""
    not_before, most = schema.queue.c.not_before, stamp(moment(now) + timedelta(seconds=2 * _WAITS[-1]))
    return sa.or_(not_before <= now, not_before > most)


def _ready(kinds: tuple[str, ...]) -> "sa.Select[Any]":
    columns = schema.queue.c
    return sa.select(columns.id).where(columns.state == QUEUED, columns.kind.in_(kinds)).limit(1)


def _one(connection: Connection, entry: str) -> Queued:
    return _queued(connection.execute(sa.select(schema.queue).where(schema.queue.c.id == entry)).one())


def _queued(row: Row[Any]) -> Queued:
    return Queued(
        row.id,
        row.branch,
        row.kind,
        json.loads(row.wish),
        row.cause,
        row.slot,
        row.author,
        row.priority,
        row.state,
        row.queued_at,
        row.attempt,
        row.retries,
        row.timeout_seconds,
        row.worker,
        row.token,
        row.renewed_at,
        row.started_at,
        row.cancel_at,
        row.commit_id,
        row.ended_at,
        json.loads(row.outcome) if row.outcome else None,
        row.not_before,
    )
