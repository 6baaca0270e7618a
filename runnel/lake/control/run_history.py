"""All runs in one list: what was queued, with its attempts, and what commands ran by themselves. Reads only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import clock, moment, stamp
from runnel.lake.control import run_queue
from runnel.lake.control.run_queue import Queued
from runnel.lake.flow_state import runs
from runnel.lake.flow_state.runs import Run
from runnel.lake.leases.expiry import is_dead

_ID_LENGTH = 24  # of an id of a run; a later attempt adds its number
_PAGE = 500
_SILENT_SECONDS = (
    run_queue.CLAIM_SECONDS + run_queue.RENEW_SECONDS
)  # a worker that is not heard of for longer has lost its run
_SILENT_HERE_SECONDS = 60.0  # where its process can be looked for, and is there: the machine may just be busy


@dataclass(frozen=True)
class Filter:
    """Which runs are wanted; what is None does not matter. Only queued ones have a cause."""

    state: str | None = None
    cause: str | None = None
    branch: str | None = None


@dataclass(frozen=True)
class Item:
    """A run: its entry, if it was queued, and its attempts that have begun, the oldest first.

    Of a list it has the last attempt only. What a command ran by itself has one attempt and no entry.
    """

    entry: Queued | None
    attempts: tuple[Run, ...] = ()

    @property
    def id(self) -> str:
        """Return the id by which it is asked for."""
        return self.entry.id if self.entry is not None else self.attempts[-1].id

    @property
    def state(self) -> str:
        """Return queued, running, lost, or how it ended."""
        return self.entry.state if self.entry is not None else self.attempts[-1].state

    @property
    def run(self) -> Run:
        """Return all of it as one run: what the queue knows, and what its last attempt did."""
        entry = self.entry
        if entry is None:
            return self.attempts[-1]
        outcome = dict(entry.outcome or {})
        done: Mapping[str, Any] = self.attempts[-1].detail if self.attempts else {}
        told = {
            "steps": outcome.get("steps", []),
            "timeline": outcome.get("timeline", {}),
            **done,
            "cause": entry.cause,
            "error": outcome.get("error"),
        }
        started = entry.started_at or entry.queued_at
        return Run(entry.id, entry.branch, entry.state, entry.author, started, entry.ended_at, entry.commit, told)


def listed(connection: Connection, wanted: Filter, limit: int, before: str | None = None) -> list[Item]:
    """Return runs, newest first, one more than `limit` where there are more."""
    found: list[Item] = []
    while len(found) <= limit:
        ids = connection.execute(_ids(wanted, limit + 1, before)).all()
        found += [one for one in _items(connection, ids) if wanted.state in (None, one.state)]
        if len(ids) <= limit:
            break
        before = ids[-1].id
    return found[: limit + 1]


def recent(connection: Connection, limit: int | None = None) -> list[Run]:
    """Return the newest runs, or all, newest first."""
    if limit is not None:
        return [one.run for one in listed(connection, Filter(), limit)[:limit]]
    found, before = list[Run](), None
    while True:
        page = listed(connection, Filter(), _PAGE, before)
        found += [one.run for one in page[:_PAGE]]
        if len(page) <= _PAGE:
            return found
        before = found[-1].id


def one(connection: Connection, text: str) -> Item:
    """Return a run by its id or the beginning of it; an attempt that is named is found as a run of its own."""
    try:
        entry = run_queue.find(connection, text)
    except Mistake as error:
        if error.code != "RUN_UNKNOWN":
            raise
        return Item(None, (_by_itself(connection, text, error),))
    names = [entry.id, *(f"{entry.id}-{number}" for number in range(2, entry.attempt + 1))]
    known, lost = runs.some(connection, names), _lost(connection, [entry])
    return Item(lost.get(entry.id, entry), tuple(known[name] for name in names if name in known))


def _by_itself(connection: Connection, text: str, unknown: Mistake) -> Run:
    """Return what a command ran by itself; what neither knows has its near miss in either."""
    try:
        return runs.run(connection, text)
    except Mistake as error:
        has_near_miss = error.code != "RUN_UNKNOWN" or "; close: " in error.what
        raise error if has_near_miss else unknown from None


def find(connection: Connection, text: str) -> Run:
    """Return a run, or the attempt of one that is named, as one value."""
    found = one(connection, text)
    named = [attempt for attempt in found.attempts if attempt.id == text != found.id]
    return named[0] if named else found.run


def _items(connection: Connection, ids: "list[Any] | Any") -> list[Item]:
    """Return ids with what is known of them, in two questions."""
    queued = run_queue.some(connection, [row.id for row in ids if row.is_queued])
    names = [queued[row.id].run if row.is_queued else row.id for row in ids]
    known = runs.some(connection, names)
    queued |= _lost(connection, queued.values())
    return [
        Item(queued.get(row.id), (known[name],) if name in known else ()) for row, name in zip(ids, names, strict=True)
    ]


def _lost(connection: Connection, entries: Iterable[Queued]) -> dict[str, Queued]:
    """Return, as lost, the entries that are running by a worker that has died or is not heard of any more.

    Only what is shown: the claim is ended by whoever sees by a clock that never jumps that nobody renews it.
    """
    running = {entry.id: entry for entry in entries if entry.state == run_queue.RUNNING}
    if not running:
        return {}
    columns, is_sqlite = schema.workers.c, connection.dialect.name == "sqlite"  # used from one machine
    owners = {row.id: row.owner for row in connection.execute(sa.select(columns.id, columns.owner))}
    silent = timedelta(seconds=_SILENT_HERE_SECONDS if is_sqlite else _SILENT_SECONDS)
    heard_after = stamp(moment(clock(connection)) - silent)
    return {
        name: _as_lost(entry)
        for name, entry in running.items()
        if (entry.renewed_at or "") < heard_after or (is_sqlite and is_dead(owners.get(entry.worker or "", "")))
    }


def _as_lost(entry: Queued) -> Queued:
    heard = (entry.renewed_at or "")[:19].replace("T", " ")
    what = f"worker {entry.worker}, which ran it, was last heard of at {heard} UTC"
    fix = "nothing where a service or another worker is there: it is run again; else `runnel up` does so"
    return replace(
        entry, state=runs.LOST, outcome={"error": {"code": "RUN_LOST", "what": what, "at": None, "fix": fix}}
    )


def _ids(wanted: Filter, limit: int, before: str | None) -> "sa.CompoundSelect[Any]":
    """Return the query for the ids of both; an attempt of what was queued is part of its entry."""
    queued, ran = schema.queue.c, schema.runs.c
    entries = sa.select(queued.id.label("id"), sa.true().label("is_queued")).where(queued.kind == "run")
    entry = sa.select(queued.id).where(queued.id == sa.func.substr(ran.id, 1, _ID_LENGTH)).exists()
    others = sa.select(ran.id.label("id"), sa.false().label("is_queued")).where(~entry)
    if wanted.state is not None:
        # That it is lost nobody may have said.
        states = {wanted.state, runs.RUNNING} if wanted.state == runs.LOST else {wanted.state}
        entries, others = entries.where(queued.state.in_(states)), others.where(ran.state.in_(states))
    if wanted.branch is not None:
        entries, others = entries.where(queued.branch == wanted.branch), others.where(ran.branch == wanted.branch)
    if wanted.cause is not None:
        entries, others = entries.where(queued.cause == wanted.cause), others.where(sa.false())
    if before is not None:
        entries, others = entries.where(queued.id < before), others.where(ran.id < before)
    return sa.union_all(entries, others).order_by(sa.desc("id")).limit(limit)
