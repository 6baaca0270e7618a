"""Follow a run until it has ended, and show its events, whichever way they come.

It imports little: a command that hands its run over follows it without SQLAlchemy.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from runnel.run.results.run_result import Event, ProgressCallback, RunResult
from runnel.run.results.run_result_json import parse_event, parse_run_result

if TYPE_CHECKING:
    from runnel.model.date_range import DateRange

DISPLAYED_EVENTS = ("note", "start", "progress", "retry", "end")  # kinds of events that are shown to users
ReportMessage = Callable[[str], None]


@dataclass(frozen=True)
class NumberedEvent:
    """An event of a run as JSON; numbers count up from 1."""

    number: int
    json: Mapping[str, Any]


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended, as the queue or REST returns it."""

    run: str
    state: str
    branch: str
    commit: str | None
    outcome: Mapping[str, Any] | None

    @classmethod
    def from_json(cls, run_json: Mapping[str, Any]) -> "FinishedRun":
        """Return the run that `GET /runs/{run}` returned."""
        return cls(run_json["run"], run_json["state"], run_json["branch"], run_json["commit"], run_json["outcome"])

    def parse_result(self) -> RunResult:
        """Return its result; raise if it failed before its first step."""
        return parse_run_result(self.run, self.state, self.branch, self.commit, self.outcome)


FollowedItem = NumberedEvent | FinishedRun


class EventSource(Protocol):
    """A way to a run of another process: what happens in it, how it ended, and a request to stop it."""

    def follow(self, after: int) -> Generator[FollowedItem, None, None]:
        """Yield the events whose number is greater than `after` as they happen, and at last how the run ended."""

    def cancel(self) -> None:
        """Ask for the run to be stopped; `follow` then yields how it ended."""


class RunFollower:
    """Follows a run, and passes its events to `watch`. `last_event` is the number of the last event that was passed.

    `subject` is what Ctrl-C stops, as messages to `report` call it.
    """

    def __init__(
        self,
        source: EventSource,
        watch: ProgressCallback | None = None,
        report: ReportMessage | None = None,
        *,
        subject: str = "run",
    ) -> None:
        self.last_event = 0
        self._source, self._watch, self._report, self._subject = source, watch, report, subject

    def follow(self) -> RunResult:
        """Wait until the run has ended, and return its result; raise if it failed before its first step.

        Ctrl-C cancels the run and waits until it has ended; a second one leaves it alone.
        """
        try:
            finished_run = self.wait_for_end()
        except KeyboardInterrupt:
            self._source.cancel()
            if self._report is not None:
                self._report(f"stopping the {self._subject}; press Ctrl-C again to leave without waiting for it")
            finished_run = self.wait_for_end()
        return finished_run.parse_result()

    def wait_for_end(self) -> FinishedRun:
        """Wait until the run has ended, and return how."""
        with closing(self._source.follow(self.last_event)) as items:
            for item in items:
                if isinstance(item, FinishedRun):
                    return item
                self.last_event = item.number
                if self._watch is not None and item.json.get("kind") in DISPLAYED_EVENTS:
                    self._watch(parse_event(item.json))
        raise AssertionError("a source of events says how the run ended")


def poll_run(
    read_end: Callable[[], FinishedRun | None],
    read_events: Callable[[int], Iterable[NumberedEvent]],
    after: int,
    pauses: Iterator[float],
) -> Generator[FollowedItem, None, None]:
    """Follow a run by reading its state and its new events again and again, with these pauses between.

    The state is read first, so that no event of a run that has ended is missing.
    """
    while True:
        finished_run = read_end()
        for event in read_events(after):
            after = event.number
            yield event
        if finished_run is not None:
            yield finished_run
            return
        time.sleep(next(pauses))


def follow_chunks(
    chunks: "Sequence[tuple[DateRange, EventSource]]",
    watch: ProgressCallback | None = None,
    report: ReportMessage | None = None,
) -> Iterator[RunResult]:
    """Follow the chunks of a backfill, and yield the result of each, up to the first that failed or was cancelled.

    To cancel the source of a chunk is to cancel the backfill.
    """
    for number, (days, source) in enumerate(chunks, 1):
        if watch is not None and len(chunks) > 1:
            watch(Event("note", f"chunk {number} of {len(chunks)}: {days}"))
        result = RunFollower(source, watch, report, subject="backfill").follow()
        yield result
        if result.state in ("failed", "cancelled"):
            return
