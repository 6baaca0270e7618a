"""List the runs in progress: whoever stops the workers waits for them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runnel.lake.catalog.database import parse_time
from runnel.lake.control import queue_entry, run_queue

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database


@dataclass(frozen=True)
class RunUnderWay:
    """A run that a worker is executing."""

    run: str
    attempt: int
    cause: str
    select: str
    started_at: str

    @property
    def text(self) -> str:
        """Return the run as a line of text for people."""
        selection = self.select or "everything"
        cause = "" if self.cause == "user" else f", {self.cause.replace('/', ' ', 1)}"
        seconds = int((datetime.now(UTC) - parse_time(self.started_at)).total_seconds())
        return f"run {self.run} ({selection}{cause}), running since {self.started_at[11:19]} UTC, {seconds} s"

    def json(self) -> dict[str, Any]:
        """Return the run as JSON for scripts."""
        return {"run": self.run, "cause": self.cause, "select": self.select, "started_at": self.started_at}


def list_runs_under_way(db: "Database", workers: "frozenset[str] | None" = None) -> list[RunUnderWay]:
    """Return the runs in progress, of the given workers or of all, the oldest first."""
    running = db.read(lambda connection: run_queue.list_entries(connection, states=(queue_entry.RUNNING,)))
    return [
        RunUnderWay(
            entry.id,
            entry.attempt,
            entry.cause,
            " ".join(entry.request.select),
            entry.started_at or entry.queued_at,
        )
        for entry in reversed(running)
        if workers is None or entry.worker in workers
    ]


def list_interrupted_runs(db: "Database", runs: "list[RunUnderWay]") -> list[RunUnderWay]:
    """Return those of `runs` that did not end: they are queued again, or will be."""
    entries = db.read(lambda connection: run_queue.find_many(connection, [run.run for run in runs]))
    return [run for run in runs if run.run in entries and entries[run.run].is_open]
