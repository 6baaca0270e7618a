"""Keep how runs ended: the last run of each kind, when each table was published, and how long runs took.

The queue is read once from the beginning, then only its new entries.
"""

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.control import queue_entry, run_queue

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database
    from runnel.lake.control.queue_entry import QueueEntry

_MAX_CLOCK_SKEW = timedelta(seconds=30)  # a transaction may commit so much later than the time it recorded
_PAGE_SIZE = 500
_MAX_DURATIONS = 10  # durations kept for each cause
_GOOD_STATES = ("succeeded", "nothing")


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended. `failed_tables` are the tables whose step failed, each with its error."""

    id: str
    run: str
    branch: str
    cause: str
    select: str
    state: str
    ended_at: str
    failed_tables: tuple[tuple[str, dict[str, Any]], ...] = ()
    error: dict[str, Any] | None = None  # of the run itself, if no step started or nothing was published

    @property
    def key(self) -> str:
        """Return the alarm key of this kind of run: of runs with the same key only the last one counts."""
        name = self.cause if self.cause != "user" else self.select or "everything"
        if len(name) > 200:
            name = f"{name[:180]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        return f"failed/{name}"


class RunOutcomes:
    """The outcomes of all runs read so far."""

    def __init__(self) -> None:
        self.last_runs: dict[str, EndedRun] = {}
        self._published_at: dict[tuple[str, str], str] = {}  # by branch and table
        self._succeeded_at: dict[tuple[str, str], str] = {}  # by branch and selection
        self._durations: dict[str, dict[str, float]] = defaultdict(dict)  # seconds, by cause and run
        self._last_ended_at = ""

    def read_new(self, db: "Database") -> None:
        """Add the runs that have ended since the last read."""
        after = format_time(parse_time(self._last_ended_at) - _MAX_CLOCK_SKEW) if self._last_ended_at else ""
        while True:
            entries = db.read(partial(run_queue.list_ended, since=after, limit=_PAGE_SIZE))
            for entry in entries:
                self.add_entry(entry)
            if len(entries) < _PAGE_SIZE or entries[-1].ended_at == after:
                return
            after = entries[-1].ended_at or after

    def add_entry(self, entry: "QueueEntry") -> None:
        """Add one ended run. Idempotent."""
        ended_run = _to_ended_run(entry)
        self._last_ended_at = max(self._last_ended_at, ended_run.ended_at)
        steps = (entry.outcome or {}).get("steps", ())
        if ended_run.state in _GOOD_STATES:
            self._note_latest(self._succeeded_at, (entry.branch, ended_run.select), ended_run.ended_at)
            for step in steps:
                if step["state"] in ("succeeded", "skipped"):
                    self._note_latest(self._published_at, (entry.branch, step["table"]), ended_run.ended_at)
        if ended_run.state == "succeeded" and entry.started_at is not None:
            durations = self._durations[entry.cause]
            durations[entry.id] = (parse_time(ended_run.ended_at) - parse_time(entry.started_at)).total_seconds()
            while len(durations) > _MAX_DURATIONS:
                durations.pop(min(durations))
        if not _is_uninformative(ended_run) and not (entry.cause == "user" and _is_private(ended_run)):
            previous = self.last_runs.get(ended_run.key)
            if previous is None or previous.ended_at <= ended_run.ended_at:
                self.last_runs[ended_run.key] = ended_run

    def last_published_at(self, table: str, branch: str = "main") -> str | None:
        """Return when a table was last published, or found up to date."""
        return self._published_at.get((branch, table))

    def typical_seconds(self, cause: str) -> float | None:
        """Return the median duration of the last runs of a cause; None if there are none."""
        durations = self._durations.get(cause)
        return median(durations.values()) if durations else None

    def unresolved_failures(self) -> list[EndedRun]:
        """Return the last run of each kind if it failed and no later run, whatever its cause, made up for it."""
        return [
            ended_run
            for ended_run in self.last_runs.values()
            if ended_run.state == queue_entry.FAILED and not self._is_resolved(ended_run)
        ]

    def _is_resolved(self, ended_run: EndedRun) -> bool:
        if self._succeeded_at.get((ended_run.branch, ended_run.select), "") > ended_run.ended_at:
            return True
        published_at = [self.last_published_at(table, ended_run.branch) or "" for table, _ in ended_run.failed_tables]
        return bool(published_at) and min(published_at) > ended_run.ended_at

    @staticmethod
    def _note_latest(latest: dict[tuple[str, str], str], key: tuple[str, str], at: str) -> None:
        latest[key] = max(latest.get(key, ""), at)


def _is_uninformative(ended_run: EndedRun) -> bool:
    """Return whether a run says nothing about its kind: it was cancelled. A cancelled backfill ends its alarm."""
    return ended_run.state == queue_entry.CANCELLED and not ended_run.cause.startswith(queue_entry.BACKFILL_PREFIX)


def _is_private(ended_run: EndedRun) -> bool:
    """Return whether a user's run concerns nobody else: it is not on main, or it failed before its first step."""
    return ended_run.branch != "main" or (ended_run.state == queue_entry.FAILED and not ended_run.failed_tables)


def _to_ended_run(entry: "QueueEntry") -> EndedRun:
    outcome = entry.outcome or {}
    failed_tables = tuple(
        (str(step["table"]), step.get("error") or {}) for step in outcome.get("steps", ()) if step["state"] == "failed"
    )
    select = " ".join(entry.request.select)
    error = outcome.get("error")
    return EndedRun(
        entry.id, entry.run, entry.branch, entry.cause, select, entry.state, entry.ended_at or "", failed_tables, error
    )
