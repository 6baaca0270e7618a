"""The claims of workers on entries of the run queue: who runs an entry, how it ended, and whether it is queued again.

A worker claims a run with a token and renews the claim while it works. A worker that lost its claim, because it was
suspended for too long, can't publish: the publishing transaction checks the token. The same transaction records the
commit in the queue, so that a run whose worker died right afterwards counts as succeeded and is not run again.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Cancelled, RunnelError
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time, parse_time
from runnel.lake.catalog.lock import lock_lake
from runnel.lake.control.queue_entry import (
    BACKFILL_PREFIX,
    CANCELLED,
    FAILED,
    PAUSED,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    QueueEntry,
    backfill_cause,
    read_entry,
)

RENEW_SECONDS = 3.0
CLAIM_SECONDS = 10.0  # a claim that is not renewed for this long has expired
_RETRY_DELAYS = (5.0, 30.0, 120.0)  # before the second attempt, the third, and so on


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
        return read_entry(connection, entry_id)

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
        entry = read_entry(connection, claim[0])
        if entry.commit is None:
            end = _end_entry(connection, db, entry, state, outcome, retry=retry, counts_as_attempt=counts_as_attempt)
        else:
            end = _end_entry(connection, db, entry, SUCCEEDED, {**outcome, "commit": entry.commit}, retry=False)
        _end_run_record(connection, db, entry, state, outcome)  # a full disk may have kept the run from saying so
        return end

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
            "fix": "logs/up.log of the service on the worker's machine says how it ended; if every attempt ends so, "
            "it may have needed more memory than there is",
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
        lost_entries = [read_entry(connection, entry_id) for entry_id in connection.execute(query).scalars().all()]
        for lost_entry in lost_entries:
            if lost_entry.commit is not None:
                _end_entry(connection, db, lost_entry, SUCCEEDED, {"commit": lost_entry.commit}, retry=False)
            else:
                state, retry = (CANCELLED, False) if lost_entry.cancel_at else (FAILED, True)
                _end_entry(connection, db, lost_entry, state, outcome, retry=retry, counts_as_attempt=counts_as_attempt)
            _end_run_record(connection, db, lost_entry, "lost", outcome)
        return [read_entry(connection, lost_entry.id) for lost_entry in lost_entries]

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


def _end_run_record(
    connection: Connection, db: Database, entry: QueueEntry, state: str, outcome: Mapping[str, Any]
) -> None:
    """Record the worker and the error of an attempt, and its end if its record still says that it is running.

    An attempt that ended before it had a record, and is followed by another one, gets a record.
    """
    columns, is_attempt = schema.runs.c, schema.runs.c.id == entry.run
    row = connection.execute(sa.select(columns.state, columns.detail).where(is_attempt)).first()
    end: dict[str, Any] = {"state": state, "ended_at": db.now(connection)}
    if entry.commit is not None:
        end |= {"state": SUCCEEDED, "commit_id": entry.commit}
    attempt_detail = {"worker": entry.worker, "error": outcome.get("error") if entry.commit is None else None}
    if row is not None:
        detail = json.dumps({**json.loads(row.detail), **attempt_detail}, sort_keys=True, default=str)
        values = {"detail": detail, **(end if row.state == RUNNING else {})}
        connection.execute(schema.runs.update().where(is_attempt).values(values))
    elif read_entry(connection, entry.id).state == QUEUED:
        identity = {"id": entry.run, "branch": entry.branch, "author": entry.author, "started_at": entry.started_at}
        connection.execute(schema.runs.insert().values(**identity, **end, detail=json.dumps(attempt_detail)))


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
