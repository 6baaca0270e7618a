"""What is under way in a lake: what somebody who stops its workers waits for."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runnel.lake.catalog.database import moment
from runnel.lake.control import run_queue

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database


@dataclass(frozen=True)
class RunUnderWay:
    """A run that a worker is at."""

    run: str
    attempt: int
    cause: str
    select: str
    started_at: str

    @property
    def text(self) -> str:
        """Return what people read."""
        what = self.select or "everything"
        who = "" if self.cause == "user" else f", {self.cause.replace('/', ' ', 1)}"
        seconds = int((datetime.now(UTC) - moment(self.started_at)).total_seconds())
        return f"run {self.run} ({what}{who}), going on since {self.started_at[11:19]} UTC, {seconds} s"

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {"run": self.run, "cause": self.cause, "select": self.select, "started_at": self.started_at}


def runs_under_way(db: "Database", workers: "frozenset[str] | None" = None) -> list[RunUnderWay]:
    """Return the runs that workers are at, those of some workers or of all, the oldest first."""
    running = db.read(lambda connection: run_queue.entries(connection, states=(run_queue.RUNNING,)))
    return [
        RunUnderWay(
            entry.id,
            entry.attempt,
            entry.cause,
            " ".join(entry.wish.get("select") or ()),
            entry.started_at or entry.queued_at,
        )
        for entry in reversed(running)
        if workers is None or entry.worker in workers
    ]


def interrupted(db: "Database", runs: "list[RunUnderWay]") -> list[RunUnderWay]:
    """Return those of some runs that did not end: they are queued again, or will be."""
    entries = db.read(lambda connection: run_queue.some(connection, [run.run for run in runs]))
    return [run for run in runs if run.run in entries and entries[run.run].is_open]
