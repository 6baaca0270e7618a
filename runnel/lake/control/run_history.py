"""List all runs: queued runs with their attempts, and runs that a command executed itself. Reads only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time, parse_time, read_clock
from runnel.lake.control import queue_entry, run_claims, run_queue
from runnel.lake.control.queue_entry import QueueEntry
from runnel.lake.flow_state import runs
from runnel.lake.flow_state.runs import Run
from runnel.lake.leases.expiry import is_lease_owner_dead

_ID_LENGTH = 24  # of a run's id; later attempts append their number
_PAGE_RUNS = 500
_SILENT_SECONDS = (
    run_claims.CLAIM_SECONDS + run_claims.RENEW_SECONDS
)  # a worker that is silent for longer has lost its run
_SILENT_LOCAL_SECONDS = 60.0  # if its process is on this machine and alive: the machine may just be busy


@dataclass(frozen=True)
class RunFilter:
    """Which runs to list; None matches all. Only queued runs have a cause."""

    state: str | None = None
    cause: str | None = None
    branch: str | None = None


@dataclass(frozen=True)
class RunRecord:
    """A run: its queue entry, if it was queued, and its attempts that have started, oldest first.

    In a list it has the first and the last attempt only. A run that a command executed itself has one attempt and no
    entry.
    """

    entry: QueueEntry | None
    attempts: tuple[Run, ...] = ()

    @property
    def id(self) -> str:
        """Return the id under which users find the run."""
        return self.entry.id if self.entry is not None else self.attempts[-1].id

    @property
    def state(self) -> str:
        """Return queued, running, lost, or how it ended."""
        return self.entry.state if self.entry is not None else self.attempts[-1].state

    @property
    def run(self) -> Run:
        """Return the record as one run: what the queue knows, and what its last attempt did."""
        entry = self.entry
        if entry is None:
            return self.attempts[-1]
        outcome = dict(entry.outcome or {})
        attempt_detail: Mapping[str, Any] = self.attempts[-1].detail if self.attempts else {}
        detail = {
            "steps": outcome.get("steps", []),
            "timeline": outcome.get("timeline", {}),
            **attempt_detail,
            "cause": entry.cause,
            "error": outcome.get("error") if entry.state != queue_entry.RUNNING else None,
        }
        return Run(
            entry.id,
            entry.branch,
            entry.state,
            entry.author,
            self.started_at or entry.queued_at,
            entry.ended_at,
            entry.commit,
            detail,
            entry.scheduled_at,
        )

    @property
    def started_at(self) -> str | None:
        """Return when its first attempt started, or None."""
        entry = self.entry
        if entry is None or (entry.attempt > 1 and self.attempts and self.attempts[0].id == entry.id):
            return self.attempts[0].started_at
        return entry.started_at


def list_run_records(
    connection: Connection, run_filter: RunFilter, limit: int, before: str | None = None
) -> list[RunRecord]:
    """Return runs, newest first; one more than `limit` if there are more."""
    records: list[RunRecord] = []
    while len(records) <= limit:
        ids = connection.execute(_ids_query(run_filter, limit + 1, before)).all()
        records += [record for record in _read_records(connection, ids) if run_filter.state in (None, record.state)]
        if len(ids) <= limit:
            break
        before = ids[-1].id
    return records[: limit + 1]


def list_recent_runs(connection: Connection, limit: int | None = None) -> list[Run]:
    """Return the newest runs, or all, newest first."""
    if limit is not None:
        return [record.run for record in list_run_records(connection, RunFilter(), limit)[:limit]]
    recent_runs, before = list[Run](), None
    while True:
        page = list_run_records(connection, RunFilter(), _PAGE_RUNS, before)
        recent_runs += [record.run for record in page[:_PAGE_RUNS]]
        if len(page) <= _PAGE_RUNS:
            return recent_runs
        before = recent_runs[-1].id


def find_run_record(connection: Connection, text: str) -> RunRecord:
    """Return a run by its id or an unambiguous prefix; the id of an attempt returns that attempt as a run."""
    try:
        entry = run_queue.find(connection, text)
    except Mistake as error:
        if error.code != "RUN_UNKNOWN":
            raise
        run = _find_command_run(connection, text, error)
        return RunRecord(None, (replace(run, detail={"attempt": 1, **run.detail}),))
    entry = _find_lost(connection, [entry]).get(entry.id, entry)
    names = [replace(entry, attempt=number).run for number in range(1, entry.attempt + 1)]
    attempts_by_id = runs.find_many(connection, names)
    if entry.attempt and entry.run not in attempts_by_id and entry.state != queue_entry.QUEUED:
        attempts_by_id[entry.run] = _build_unrecorded_attempt(entry)
    attempts = [
        _add_attempt_detail(entry, number, attempts_by_id[name])
        for number, name in enumerate(names, 1)
        if name in attempts_by_id
    ]
    return RunRecord(entry, tuple(attempts))


def _build_unrecorded_attempt(entry: QueueEntry) -> Run:
    """Return the last attempt of a run that had nothing to do, or that ended before it could be recorded."""
    started_at = entry.started_at or entry.queued_at
    detail = dict(entry.outcome or {})
    return Run(entry.run, entry.branch, entry.state, entry.author, started_at, entry.ended_at, entry.commit, detail)


def _add_attempt_detail(entry: QueueEntry, number: int, attempt: Run) -> Run:
    """Return an attempt with its number, and with the worker and the error that only the queue has yet."""
    detail = {**attempt.detail, "attempt": number}
    if number == entry.attempt and entry.state != queue_entry.QUEUED:
        detail["worker"] = detail.get("worker") or entry.worker
        if entry.state != queue_entry.RUNNING:  # else the queue still has the error of the attempt before
            detail["error"] = detail.get("error") or (entry.outcome or {}).get("error")
    return replace(attempt, detail=detail, scheduled_at=entry.scheduled_at)


def _find_command_run(connection: Connection, text: str, queue_error: Mistake) -> Run:
    """Return a run that a command executed itself; if there is none, raise the error that has a near miss."""
    try:
        return runs.find_run(connection, text)
    except Mistake as error:
        has_near_miss = error.code != "RUN_UNKNOWN" or "; close: " in error.what
        raise error if has_near_miss else queue_error from None


def find_run(connection: Connection, text: str) -> Run:
    """Return a run with its attempts, or the named attempt of a run, as one value."""
    record = find_run_record(connection, text)
    named_attempts = [attempt for attempt in record.attempts if attempt.id == text != record.id]
    return replace(named_attempts[0] if named_attempts else record.run, attempts=record.attempts)


def _read_records(connection: Connection, ids: "list[Any] | Any") -> list[RunRecord]:
    """Return the records of some ids, in two queries."""
    queued = run_queue.find_many(connection, [row.id for row in ids if row.is_queued])
    names = {row.id: list(dict.fromkeys((row.id, queued[row.id].run if row.is_queued else row.id))) for row in ids}
    attempts_by_id = runs.find_many(connection, [name for attempt_names in names.values() for name in attempt_names])
    queued |= _find_lost(connection, queued.values())
    return [
        RunRecord(queued.get(row.id), tuple(attempts_by_id[name] for name in names[row.id] if name in attempts_by_id))
        for row in ids
    ]


def _find_lost(connection: Connection, entries: Iterable[QueueEntry]) -> dict[str, QueueEntry]:
    """Return the running entries whose worker has died or is silent, in the state `lost`.

    This only affects what is displayed: the claim is ended by the process that observes, with a monotonic clock, that
    it is not renewed.
    """
    running = {entry.id: entry for entry in entries if entry.state == queue_entry.RUNNING}
    if not running:
        return {}
    columns, is_sqlite = schema.workers.c, connection.dialect.name == "sqlite"  # all workers are on this machine
    owners = {row.id: row.owner for row in connection.execute(sa.select(columns.id, columns.owner))}
    silent = timedelta(seconds=_SILENT_LOCAL_SECONDS if is_sqlite else _SILENT_SECONDS)
    heard_after = format_time(parse_time(read_clock(connection)) - silent)
    return {
        name: _mark_lost(entry)
        for name, entry in running.items()
        if (entry.renewed_at or "") < heard_after
        or (is_sqlite and is_lease_owner_dead(owners.get(entry.worker or "", "")))
    }


def _mark_lost(entry: QueueEntry) -> QueueEntry:
    last_heard = (entry.renewed_at or "")[:19].replace("T", " ")
    what = f"worker {entry.worker}, which ran it, last reported at {last_heard} UTC"
    fix = "nothing if a service or another worker is running: it repeats the run; otherwise start `runnel up`"
    return replace(
        entry, state=runs.LOST, outcome={"error": {"code": "RUN_LOST", "what": what, "at": None, "fix": fix}}
    )


def _ids_query(run_filter: RunFilter, limit: int, before: str | None) -> "sa.CompoundSelect[Any]":
    """Return the query for the ids of queued and other runs; attempts of a queued run belong to its entry."""
    queue_columns, run_columns = schema.queue.c, schema.runs.c
    entries = sa.select(queue_columns.id.label("id"), sa.true().label("is_queued")).where(queue_columns.kind == "run")
    has_entry = (
        sa.select(queue_columns.id).where(queue_columns.id == sa.func.substr(run_columns.id, 1, _ID_LENGTH)).exists()
    )
    others = sa.select(run_columns.id.label("id"), sa.false().label("is_queued")).where(~has_entry)
    if run_filter.state is not None:
        # A lost run may still be stored as running.
        states = {run_filter.state, runs.RUNNING} if run_filter.state == runs.LOST else {run_filter.state}
        entries, others = entries.where(queue_columns.state.in_(states)), others.where(run_columns.state.in_(states))
    if run_filter.branch is not None:
        entries, others = (
            entries.where(queue_columns.branch == run_filter.branch),
            others.where(run_columns.branch == run_filter.branch),
        )
    if run_filter.cause is not None:
        entries, others = entries.where(queue_columns.cause == run_filter.cause), others.where(sa.false())
    if before is not None:
        entries, others = entries.where(queue_columns.id < before), others.where(run_columns.id < before)
    return sa.union_all(entries, others).order_by(sa.desc("id")).limit(limit)
