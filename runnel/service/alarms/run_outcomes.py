"""How runs have ended, as far as it matters now: the last of each kind, what was made when, and how long it took.

Read once from the beginning, then only what is new.
"""

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from runnel.lake.catalog.database import moment, stamp
from runnel.lake.control import run_queue

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database
    from runnel.lake.control.run_queue import Queued

_LATE = timedelta(seconds=30)  # a transaction may end so much later than the time that it noted
_PAGE = 500
_KEPT = 10  # runs of a cause whose time is known
_GOOD = ("succeeded", "nothing")


@dataclass(frozen=True)
class Ended:
    """A run that has ended. `failed` are the tables whose step failed, each with its error."""

    id: str
    run: str
    branch: str
    cause: str
    select: str
    state: str
    ended_at: str
    failed: tuple[tuple[str, dict[str, Any]], ...] = ()
    error: dict[str, Any] | None = None  # of the whole, where nothing was begun or published

    @property
    def key(self) -> str:
        """Return what tells apart runs of which only the last one counts."""
        name = self.cause if self.cause != "user" else self.select or "everything"
        if len(name) > 200:
            name = f"{name[:180]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        return f"failed/{name}"


class History:
    """What has happened so far."""

    def __init__(self) -> None:
        self.last: dict[str, Ended] = {}
        self._made: dict[tuple[str, str], str] = {}  # branch and table: when
        self._went_well: dict[tuple[str, str], str] = {}  # branch and selection: when
        self._took: dict[str, dict[str, float]] = defaultdict(dict)  # of each cause: seconds of runs
        self._since = ""

    def read(self, db: "Database") -> None:
        """Take in what has ended since it was last read."""
        after = stamp(moment(self._since) - _LATE) if self._since else ""
        while True:
            found = db.read(partial(run_queue.ended, since=after, limit=_PAGE))
            for one in found:
                self.see(one)
            if len(found) < _PAGE or found[-1].ended_at == after:
                return
            after = found[-1].ended_at or after

    def see(self, one: "Queued") -> None:
        """Take in one run; to see it twice is the same as once."""
        ended = _ended(one)
        self._since = max(self._since, ended.ended_at)
        steps = (one.outcome or {}).get("steps", ())
        if ended.state in _GOOD:
            self._note(self._went_well, (one.branch, ended.select), ended.ended_at)
            for step in steps:
                if step["state"] in ("succeeded", "skipped"):
                    self._note(self._made, (one.branch, step["table"]), ended.ended_at)
        if ended.state == "succeeded" and one.started_at is not None:
            took = self._took[one.cause]
            took[one.id] = (moment(ended.ended_at) - moment(one.started_at)).total_seconds()
            while len(took) > _KEPT:
                took.pop(min(took))
        if not _is_idle(ended) and not (one.cause == "user" and _is_private(ended)):
            known = self.last.get(ended.key)
            if known is None or known.ended_at <= ended.ended_at:
                self.last[ended.key] = ended

    def made_at(self, table: str, branch: str = "main") -> str | None:
        """Return when a table was last made, or found up to date."""
        return self._made.get((branch, table))

    def seconds(self, cause: str) -> float | None:
        """Return how long a run of a cause takes, as the last ones did."""
        found = self._took.get(cause)
        return median(found.values()) if found else None

    def failed(self) -> list[Ended]:
        """Return the last run of each kind where that failed, and did not go well later, whoever ran it."""
        return [one for one in self.last.values() if one.state == run_queue.FAILED and not self._is_mended(one)]

    def _is_mended(self, one: Ended) -> bool:
        if self._went_well.get((one.branch, one.select), "") > one.ended_at:
            return True
        made = [self.made_at(table, one.branch) or "" for table, _ in one.failed]
        return bool(made) and min(made) > one.ended_at

    @staticmethod
    def _note(known: dict[tuple[str, str], str], key: tuple[str, str], at: str) -> None:
        known[key] = max(known.get(key, ""), at)


def _is_idle(one: Ended) -> bool:
    """Tell whether a run says nothing about how those of its kind go; one of a backfill was stopped for good."""
    return one.state == run_queue.CANCELLED and not one.cause.startswith(run_queue.BACKFILL)


def _is_private(one: Ended) -> bool:
    """Tell whether a run that a person asked for is nobody else's business: not on main, or wrong from the start."""
    return one.branch != "main" or (one.state == run_queue.FAILED and not one.failed)


def _ended(one: "Queued") -> Ended:
    outcome = one.outcome or {}
    failed = tuple(
        (str(step["table"]), step.get("error") or {}) for step in outcome.get("steps", ()) if step["state"] == "failed"
    )
    select = " ".join(one.wish.get("select") or ())
    error = outcome.get("error")
    return Ended(one.id, one.run, one.branch, one.cause, select, one.state, one.ended_at or "", failed, error)
