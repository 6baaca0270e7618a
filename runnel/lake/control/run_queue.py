"""Keep the queue of runs: what is requested, which worker runs it, and how it ended.

A worker claims a run with a token and renews the claim while it works. A worker that lost its claim, because it was
suspended for too long, can't publish: the publishing transaction checks the token. The same transaction records the
commit in the queue, so that a run whose worker died right afterwards counts as succeeded and is not run again.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Cancelled, Mistake, RunnelError, did_you_mean
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time, parse_time
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.control.request_json import to_request_json
from runnel.model.run_request import RunRequest
from runnel.model.schedule_slot import ScheduleSlot
from runnel.model.worker_request import PlanRequest, WorkerRequest, parse_worker_request
from runnel.names import new_run_id, quote_value
from runnel.telemetry import tracing

QUEUED, RUNNING, CANCELLED, SUCCEEDED, FAILED = "queued", "running", "cancelled", "succeeded", "failed"
OPEN_STATES = (QUEUED, RUNNING)
LOST = "lost"  # never stored, only displayed: running on a worker that no longer renews its claim
PAUSED = "paused"  # a backfill whose chunks wait for a person
BACKFILL_PREFIX = "backfill/"  # prefix of the cause of its chunks
RENEW_SECONDS = 3.0
CLAIM_SECONDS = 10.0  # a claim that is not renewed for this long has expired
_RETRY_DELAYS = (5.0, 30.0, 120.0)  # before the second attempt, the third, and so on


@dataclass(frozen=True)
class QueueRequest:
    """A request to run something. Of several requests with the same `slot` only the first is queued.

    `schedule_slot` is what made the schedule due that requests it, `trace` the traceparent of whoever requests it.
    """

    request: WorkerRequest
    author: str
    cause: str = "user"
    slot: str | None = None
    priority: int = 0
    retries: int = 2
    timeout_seconds: int | None = None
    not_before: str = ""
    schedule_slot: ScheduleSlot | None = None
    trace: str | None = None
    id: str = field(default_factory=lambda: new_run_id(datetime.now(UTC)))


@dataclass(frozen=True)
class QueueEntry:
    """The current state of an entry of the queue. `commit` is None until it has published."""

    id: str
    branch: str
    kind: str
    request: WorkerRequest
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
    schedule_slot: ScheduleSlot | None = None
    trace: str | None = None

    @property
    def run_request(self) -> RunRequest:
        """Return the run that it requests; the message names the schedule that queued it, if it has no other."""
        request = self.request.run if isinstance(self.request, PlanRequest) else self.request
        if not isinstance(request, RunRequest):
            return RunRequest(branch=self.branch)
        schedule_message = self.schedule_slot.message if self.schedule_slot is not None else None
        return replace(request, message=request.message or schedule_message)

    @property
    def request_json(self) -> dict[str, Any]:
        """Return the request as the catalog stores it."""
        return to_request_json(self.request, self.schedule_slot, self.trace)

    @property
    def run(self) -> str:
        """Return the run id of its last attempt."""
        return self.id if self.attempt <= 1 else f"{self.id}-{self.attempt}"

    @property
    def claim(self) -> tuple[str, str]:
        """Return the id and token that a commit draft carries, so that it is published only if the claim is valid."""
        return self.id, self.token or ""

    @property
    def waited_seconds(self) -> float:
        """Return how long its last attempt waited to be claimed; the pause after a failure does not count."""
        if self.started_at is None:
            return 0.0
        waiting_since = max(self.queued_at, self.not_before)
        return max((parse_time(self.started_at) - parse_time(waiting_since)).total_seconds(), 0.0)

    @property
    def is_open(self) -> bool:
        """Return whether it has not ended yet."""
        return self.state in (*OPEN_STATES, LOST)  # one whose worker is lost is run again, or is ended


def add(connection: Connection, db: Database, entries: Iterable[QueueRequest]) -> list[str]:
    """Queue requests and return the ids of those that were queued; skip a request whose slot was queued before."""
    requests = list(entries)
    slots = [entry.slot for entry in requests if entry.slot is not None]
    existing_slots = _find_existing_slots(connection, slots)
    now, rows, queued_ids = db.now(connection), list[dict[str, Any]](), list[str]()
    for entry in requests:
        if entry.slot is not None and entry.slot in existing_slots:
            continue
        existing_slots.add(entry.slot or "")
        rows.append(_to_row(entry, format_time(parse_time(now) + timedelta(microseconds=len(rows)))))  # in this order
        queued_ids.append(entry.id)
    if rows:
        connection.execute(schema.queue.insert(), rows)
    return queued_ids


def submit(db: Database, entry: QueueRequest) -> str | None:
    """Queue one request and return its id; None if its slot was queued before."""

    def work(connection: Connection) -> str | None:
        if connection.execute(sa.select(schema.queue.c.id).where(schema.queue.c.id == entry.id)).first():
            return entry.id  # an earlier attempt took effect, and its acknowledgement was lost
        queued_ids = add(connection, db, [entry])
        return queued_ids[0] if queued_ids else None

    return db.write(work)


def claim(db: Database, worker: str, kinds: Iterable[str] = ("run",)) -> QueueEntry | None:
    """Claim the next entry and return it, or None. Entries of a schedule or backfill run one at a time per cause."""
    columns, requested_kinds = schema.queue.c, tuple(kinds)

    def work(connection: Connection) -> QueueEntry | None:
        lock_lake(connection)  # else two workers could each claim an entry of one cause
        now = db.now(connection)
        busy_causes = sa.select(columns.cause).where(columns.state == RUNNING, columns.cause != "user")
        paused_causes = sa.select(backfill_cause(schema.backfills.c.id)).where(schema.backfills.c.state == PAUSED)
        ready = sa.select(columns.id).where(columns.state == QUEUED, columns.kind.in_(requested_kinds), _is_due(now))
        order = (columns.priority.desc(), columns.queued_at, columns.id)
        claimable = ready.where(columns.cause.not_in(busy_causes), columns.cause.not_in(paused_causes))
        entry_id = connection.execute(claimable.order_by(*order).limit(1)).scalar()
        if entry_id is None:
            return None
        token = secrets.token_hex(16)
        values = {"state": RUNNING, "worker": worker, "token": token, "renewed_at": now, "started_at": now}
        is_unclaimed = sa.and_(columns.id == entry_id, columns.state == QUEUED)
        connection.execute(schema.queue.update().where(is_unclaimed).values(**values, attempt=columns.attempt + 1))
        return _read_entry(connection, entry_id)

    if db.read(lambda connection: connection.execute(_build_ready_query(requested_kinds)).first()) is None:
        return None  # nothing to claim: this read takes no lock
    return db.write(work)


def renew(db: Database, claims: Iterable[tuple[str, str]]) -> None:
    """Renew the claims that are still valid."""
    held_claims = tuple(claims)

    def work(connection: Connection) -> None:
        now = db.now(connection)
        for claim in held_claims:
            connection.execute(schema.queue.update().where(_is_claim_valid(claim)).values(renewed_at=now))

    if held_claims:
        db.write(work)


def find_valid_claims(connection: Connection, claims: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """Return the entry ids of the claims that are still valid, each with its cancellation time or None."""
    columns = schema.queue.c
    rows_by_claim = [
        connection.execute(sa.select(columns.id, columns.cancel_at).where(_is_claim_valid(claim))) for claim in claims
    ]
    return {row.id: row.cancel_at for claim_rows in rows_by_claim for row in claim_rows}


def finish(
    db: Database,
    claim: tuple[str, str],
    state: str,
    outcome: Mapping[str, Any],
    *,
    retry: bool = False,
    counts_as_attempt: bool = True,
) -> str | None:
    """Record how an entry ended, and return its new state; None if the claim was lost.

    With `retry` the failure may be temporary: the entry is queued again if it has retries left, or in any case if
    this attempt does not count. An entry that has published has succeeded, whatever failed after that.
    """

    def work(connection: Connection) -> str | None:
        if (
            connection.execute(sa.select(schema.queue.c.id).where(_is_claim_valid(claim)).with_for_update()).first()
            is None
        ):
            return None
        entry = _read_entry(connection, claim[0])
        _end_run_record(connection, db, entry, state)  # a full disk may have kept the run from saying so itself
        if entry.commit is None:
            return _end_entry(connection, db, entry, state, outcome, retry=retry, counts_as_attempt=counts_as_attempt)
        return _end_entry(connection, db, entry, SUCCEEDED, {**outcome, "commit": entry.commit}, retry=False)

    return db.write(work)


def requeue_interrupted(db: Database, worker: str) -> list[QueueEntry]:
    """Queue the entries of a worker that is shutting down again; the interrupted attempt does not count."""
    what = "the run was interrupted because its worker was stopped; it is queued again"
    error = {"code": "RUN_INTERRUPTED", "what": what, "at": None, "fix": None}
    return _release_matching(db, [schema.queue.c.worker == worker], {"error": error}, counts_as_attempt=False)


def release_claims(
    db: Database, *, worker: str | None = None, stale: Iterable[tuple[str, str]] = ()
) -> list[QueueEntry]:
    """End the claims of a worker that has died, or claims that were not renewed; return the updated entries.

    An entry that has published succeeds, one with a cancellation request is cancelled, and any other is queued again
    if it has retries left.
    """
    columns = schema.queue.c
    lost_conditions = [
        sa.and_(columns.id == entry_id, columns.renewed_at == renewed_at) for entry_id, renewed_at in stale
    ]
    lost_conditions += [columns.worker == worker] if worker is not None else []
    outcome = {
        "error": {
            "code": "RUN_LOST",
            "what": "the worker that ran it ended or stopped responding",
            "at": None,
            "fix": None,
        }
    }
    return _release_matching(db, lost_conditions, outcome) if lost_conditions else []


def _release_matching(
    db: Database,
    lost_conditions: "list[sa.ColumnElement[bool]]",
    outcome: Mapping[str, Any],
    *,
    counts_as_attempt: bool = True,
) -> list[QueueEntry]:
    columns = schema.queue.c

    def work(connection: Connection) -> list[QueueEntry]:
        query = (
            sa.select(columns.id)
            .where(columns.state == RUNNING, sa.or_(*lost_conditions))
            .with_for_update(skip_locked=True)
        )
        lost_entries = [_read_entry(connection, entry_id) for entry_id in connection.execute(query).scalars().all()]
        for lost_entry in lost_entries:
            _end_run_record(connection, db, lost_entry, "lost")
            if lost_entry.commit is not None:
                _end_entry(connection, db, lost_entry, SUCCEEDED, {"commit": lost_entry.commit}, retry=False)
            else:
                state, retry = (CANCELLED, False) if lost_entry.cancel_at else (FAILED, True)
                _end_entry(connection, db, lost_entry, state, outcome, retry=retry, counts_as_attempt=counts_as_attempt)
        return [_read_entry(connection, lost_entry.id) for lost_entry in lost_entries]

    return db.write(work)


def cancel(db: Database, entry_id: str) -> QueueEntry:
    """Cancel an entry: a queued one at once, a running one as soon as its worker sees the request."""
    columns = schema.queue.c

    def work(connection: Connection) -> QueueEntry:
        now, current_entry = db.now(connection), find(connection, entry_id)
        cancel_queued = schema.queue.update().where(columns.id == current_entry.id, columns.state == QUEUED)
        if not connection.execute(cancel_queued.values(state=CANCELLED, cancel_at=now, ended_at=now)).rowcount:
            cancel_running = schema.queue.update().where(columns.id == current_entry.id, columns.state == RUNNING)
            connection.execute(cancel_running.where(columns.cancel_at.is_(None)).values(cancel_at=now))
        return _read_entry(connection, current_entry.id)

    return db.write(work)


def record_commit(connection: Connection, claim: tuple[str, str], commit_id: str) -> None:
    """Record that this transaction publishes an entry; raise if its claim was lost or it is being cancelled."""
    columns = schema.queue.c
    is_claimed = _is_claim_valid(claim)
    can_publish = sa.and_(is_claimed, columns.cancel_at.is_(None))
    if connection.execute(schema.queue.update().where(can_publish).values(commit_id=commit_id)).rowcount == 1:
        return
    if connection.execute(sa.select(columns.id).where(is_claimed)).first() is not None:
        raise Cancelled
    what = f"the worker did not renew its claim on run {claim[0]} in time, and another worker has taken the run over"
    raise RunnelError("PUBLISH_CLAIM_LOST", what, fix="nothing: the other worker publishes it")


def find(connection: Connection, text: str) -> QueueEntry:
    """Return the entry with this id or unique id prefix; the run id of an attempt is accepted, too."""
    columns = schema.queue.c
    for name in (text, text.rpartition("-")[0]):
        row = connection.execute(sa.select(schema.queue).where(columns.id == name)).first() if name else None
        if row is not None:
            return _parse_entry(row)
    starts = columns.id.startswith(text, autoescape=True)
    rows = connection.execute(sa.select(schema.queue).where(starts).limit(2)).all() if text else []
    if len(rows) == 1:
        return _parse_entry(rows[0])
    if rows:
        raise Mistake("RUN_AMBIGUOUS", f"several runs start with `{text}`", fix="write more of its characters")
    recent_ids = connection.execute(sa.select(columns.id).order_by(columns.queued_at.desc()).limit(100)).scalars()
    what = f"there is no run {quote_value(text)}" + did_you_mean(text, recent_ids)
    raise Mistake("RUN_UNKNOWN", what, fix="`runnel runs` lists them")


def find_many(connection: Connection, names: Iterable[str]) -> dict[str, QueueEntry]:
    """Return the existing entries among these ids."""
    requested_ids, entries_by_id = list(names), dict[str, QueueEntry]()
    for start in range(0, len(requested_ids), 500):
        query = sa.select(schema.queue).where(schema.queue.c.id.in_(requested_ids[start : start + 500]))
        entries_by_id |= {row.id: _parse_entry(row) for row in connection.execute(query)}
    return entries_by_id


def find_by_slot(connection: Connection, slot: str) -> QueueEntry:
    """Return the entry that was queued for a slot."""
    return _parse_entry(connection.execute(sa.select(schema.queue).where(schema.queue.c.slot == slot)).one())


def list_entries(
    connection: Connection,
    *,
    states: Iterable[str] = (),
    cause: str | None = None,
    before: str | None = None,
    limit: int | None = None,
) -> list[QueueEntry]:
    """Return entries, newest first. `before` is the id of one: only older ones are returned."""
    columns = schema.queue.c
    query = sa.select(schema.queue).order_by(columns.id.desc()).limit(limit)
    if requested_states := tuple(states):
        query = query.where(columns.state.in_(requested_states))
    if cause is not None:
        query = query.where(columns.cause == cause)
    if before is not None:
        query = query.where(columns.id < before)
    return [_parse_entry(row) for row in connection.execute(query)]


def list_ended(connection: Connection, since: str, limit: int) -> list[QueueEntry]:
    """Return the runs that ended since a time, the oldest first."""
    columns = schema.queue.c
    is_ended_run = sa.and_(columns.ended_at >= since, columns.kind == "run")
    query = sa.select(schema.queue).where(is_ended_run).order_by(columns.ended_at, columns.id).limit(limit)
    return [_parse_entry(row) for row in connection.execute(query)]


def delete_old(db: Database, seconds: float) -> int:
    """Delete entries that ended more than `seconds` ago, with their events; return how many."""
    columns = schema.queue.c

    def work(connection: Connection) -> int:
        until = format_time(parse_time(db.now(connection)) - timedelta(seconds=seconds))
        is_old = sa.and_(columns.ended_at.is_not(None), columns.ended_at < until)
        old_ids = sa.select(columns.id).where(is_old)
        connection.execute(schema.events.delete().where(schema.events.c.run.in_(old_ids)))
        return connection.execute(schema.queue.delete().where(is_old)).rowcount

    return db.write(work)


def _end_entry(
    connection: Connection,
    db: Database,
    entry: QueueEntry,
    state: str,
    outcome: Mapping[str, Any],
    *,
    retry: bool,
    counts_as_attempt: bool = True,
) -> str:
    now = db.now(connection)
    values: dict[str, Any] = {"token": None, "outcome": json.dumps(dict(outcome), sort_keys=True, default=str)}
    retries = entry.retries if counts_as_attempt else entry.retries + 1
    if state == FAILED and retry and entry.attempt <= retries and entry.cancel_at is None:
        delay_seconds = _RETRY_DELAYS[min(entry.attempt, len(_RETRY_DELAYS)) - 1]
        values |= {
            "state": QUEUED,
            "not_before": format_time(parse_time(now) + timedelta(seconds=delay_seconds)),
            "worker": None,
        }
        values["retries"] = retries
    else:
        values |= {"state": state, "ended_at": now}
    connection.execute(schema.queue.update().where(schema.queue.c.id == entry.id).values(values))
    if entry.cause.startswith(BACKFILL_PREFIX) and values["state"] in (FAILED, CANCELLED):
        is_backfill = backfill_cause(schema.backfills.c.id) == entry.cause
        connection.execute(schema.backfills.update().where(is_backfill).values(state=PAUSED))  # later chunks wait
    return str(values["state"])


def backfill_cause(backfill: "sa.Column[Any] | str") -> Any:
    """Return the cause of a backfill's entries, for its id or for a column of ids."""
    return BACKFILL_PREFIX + backfill


def _end_run_record(connection: Connection, db: Database, entry: QueueEntry, state: str) -> None:
    """End the record of the run, if it still says that the run is running."""
    runs = schema.runs
    is_running = sa.and_(runs.c.id == entry.run, runs.c.state == RUNNING)
    values: dict[str, Any] = {"state": state, "ended_at": db.now(connection)}
    if entry.commit is not None:
        values |= {"state": SUCCEEDED, "commit_id": entry.commit}
    connection.execute(runs.update().where(is_running).values(values))


def _find_existing_slots(connection: Connection, slots: list[str]) -> set[str]:
    column, existing = schema.queue.c.slot, set[str]()
    for start in range(0, len(slots), 500):
        query = sa.select(column).where(column.in_(slots[start : start + 500]))
        existing.update(connection.execute(query).scalars())
    return existing


def _to_row(entry: QueueRequest, now: str) -> dict[str, Any]:
    trace = tracing.current_traceparent() or entry.trace  # for example that of the HTTP request
    return {
        "id": entry.id,
        "branch": entry.request.branch,
        "kind": entry.request.kind,
        "wish": json.dumps(to_request_json(entry.request, entry.schedule_slot, trace)),
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


def _is_claim_valid(claim: tuple[str, str]) -> "sa.ColumnElement[bool]":
    columns = schema.queue.c
    return sa.and_(columns.id == claim[0], columns.token == claim[1], columns.state == RUNNING)


def _is_due(now: str) -> "sa.ColumnElement[bool]":
    """Return whether an entry is due; one whose time is implausibly far ahead was written with a wrong clock."""
    not_before, latest_plausible = (
        schema.queue.c.not_before,
        format_time(parse_time(now) + timedelta(seconds=2 * _RETRY_DELAYS[-1])),
    )
    return sa.or_(not_before <= now, not_before > latest_plausible)


def _build_ready_query(kinds: tuple[str, ...]) -> "sa.Select[Any]":
    columns = schema.queue.c
    return sa.select(columns.id).where(columns.state == QUEUED, columns.kind.in_(kinds)).limit(1)


def _read_entry(connection: Connection, entry_id: str) -> QueueEntry:
    return _parse_entry(connection.execute(sa.select(schema.queue).where(schema.queue.c.id == entry_id)).one())


def _parse_entry(row: Row[Any]) -> QueueEntry:
    request_json = json.loads(row.wish)
    return QueueEntry(
        row.id,
        row.branch,
        row.kind,
        parse_worker_request(row.kind, request_json, row.branch),
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
        ScheduleSlot.from_json(request_json),
        request_json.get("trace"),
    )
