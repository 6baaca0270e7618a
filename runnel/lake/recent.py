"""Runs with what the queue knows of them: who wanted them, those that wait, and those that ended before they began."""

from dataclasses import replace

from sqlalchemy.engine import Connection

from runnel.errors import Mistake
from runnel.lake import queue, runs
from runnel.lake.queue import Queued
from runnel.lake.runs import Run


def recent(connection: Connection, limit: int | None = None) -> list[Run]:
    """Return the newest runs, newest first."""
    entries = {entry.run: entry for entry in queue.entries(connection, limit=limit) if entry.kind == "run"}
    known = [_told(one, entries.pop(one.id, None)) for one in runs.runs(connection, limit)]
    found = [*known, *(run_of(entry) for entry in entries.values())]
    return sorted(found, key=lambda one: (one.started_at, one.id), reverse=True)[:limit]


def find(connection: Connection, text: str) -> Run:
    """Return the run with this id, or with the one id that starts so; raise with the nearest otherwise."""
    try:
        return _told(runs.run(connection, text), _entry(connection, text))
    except Mistake as mistake:
        entry = _entry(connection, text) if mistake.code == "RUN_UNKNOWN" else None
        if entry is None:
            raise
        return run_of(entry)


def run_of(entry: Queued) -> Run:
    """Return an entry that no run was recorded for as a run: it waits, or ended before it began."""
    outcome = dict(entry.outcome or {})
    detail = {"cause": entry.cause, "steps": outcome.get("steps", []), "error": outcome.get("error")}
    detail["timeline"] = outcome.get("timeline", {})
    started = entry.started_at or entry.queued_at
    return Run(entry.run, entry.branch, entry.state, entry.author, started, entry.ended_at, entry.commit, detail)


def _told(one: Run, entry: Queued | None) -> Run:
    return replace(one, detail={**one.detail, "cause": entry.cause}) if entry is not None else one


def _entry(connection: Connection, text: str) -> Queued | None:
    try:
        return queue.find(connection, text)
    except Mistake:
        return None
