"""Submit a request to the workers, and follow its run as if this process computed it."""

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.errors import Conflict
from runnel.lake.control import backfills, run_events, run_queue, workers
from runnel.names import new_run_id
from runnel.run.results.run_result import Event, ProgressCallback, RunResult
from runnel.run.results.run_result_json import DISPLAYED_EVENTS, STOPPING_MESSAGE, parse_event, parse_run_result
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.run_queue import QueueEntry
    from runnel.model.date_range import DateRange
    from runnel.model.run_request import RunRequest

_PAUSE_SECONDS = 0.05


def has_worker(lake: "Lake") -> bool:
    """Return whether a worker of this project is running."""
    return lake.store.db.read(lambda connection: workers.has_worker(connection, lake.settings.name))


def submit_request(lake: "Lake", request: "RunRequest", *, cause: str = "user") -> str:
    """Queue a request of this user, and return the id of its queue entry."""
    store = lake.store
    store.commit(request.branch)
    trace = tracing.read_traceparent(os.environ)
    entry = run_queue.QueueRequest(request, store.author, cause=cause, trace=trace)
    entry_id = run_queue.submit(store.db, entry)
    assert entry_id is not None
    return entry_id


def follow_run(
    lake: "Lake",
    entry_id: str,
    watch: ProgressCallback | None = None,
    report: "Callable[[str], None] | None" = None,
    *,
    last_event: int = 0,
) -> RunResult:
    """Wait until a queue entry has ended and return its result, passing events after `last_event` to `watch`.

    Ctrl-C cancels the run and waits until it has ended; a second one leaves it alone.
    """
    follower = _RunFollower(lake, entry_id, watch, last_event)
    try:
        return follower.wait_for_result()
    except KeyboardInterrupt:
        run_queue.cancel(lake.store.db, entry_id)
        if report is not None:
            report(STOPPING_MESSAGE)
        return follower.wait_for_result()


def cancel_run(lake: "Lake", entry_id: str, *, wait: bool = True) -> "QueueEntry":
    """Cancel a run, and return its queue entry; `wait` until it has ended."""
    db = lake.store.db
    queue_entry = run_queue.cancel(db, entry_id)
    if not wait or not queue_entry.is_open:
        return queue_entry
    _RunFollower(lake, queue_entry.id, None).wait_for_end()
    return db.read(lambda connection: run_queue.find(connection, queue_entry.id))


def retry_run(
    lake: "Lake", entry_id: str, watch: ProgressCallback | None = None, report: "Callable[[str], None] | None" = None
) -> RunResult:
    """Run the request of a queue entry again: by a worker if one is running, else in this process."""
    from runnel.project.execution.run_project import run_project

    previous = lake.store.db.read(lambda connection: run_queue.find(connection, entry_id))
    if previous.is_open:
        raise Conflict(
            "RUN_OPEN", f"run {previous.id} is still {previous.state}", fix=f"`runnel cancel {previous.id}` stops it"
        )
    if has_worker(lake):
        return follow_run(lake, submit_request(lake, previous.run_request), watch, report)
    return run_project(lake, previous.run_request, watch=watch)


def submit_backfill(lake: "Lake", request: "RunRequest", chunks: "Sequence[DateRange]") -> str:
    """Queue the chunks of a backfill, and return its id."""
    name, store = new_run_id(datetime.now(UTC)), lake.store
    store.commit(request.branch)
    backfills.create(store.db, name, [request.for_chunk(days) for days in chunks], store.author)
    return name


def follow_backfill(
    lake: "Lake", name: str, watch: ProgressCallback | None = None, report: "Callable[[str], None] | None" = None
) -> "list[RunResult]":
    """Wait until a backfill has ended, and return the result of each chunk that was started; Ctrl-C cancels it."""
    chunks, results = lake.store.db.read(lambda connection: backfills.find(connection, name)).chunks, list[RunResult]()
    for number, chunk in enumerate(chunks, 1):
        if watch is not None and len(chunks) > 1:
            days = backfills.chunk_days(chunk)
            watch(Event("note", f"chunk {number} of {len(chunks)}: {days.first} to {days.last}"))
        try:
            results.append(_RunFollower(lake, chunk.id, watch).wait_for_result())
        except KeyboardInterrupt:
            backfills.cancel(lake.store.db, name)
            if report is not None:
                report("stopping the backfill; press Ctrl-C again to leave without waiting for it")
            results.append(_RunFollower(lake, chunk.id, watch).wait_for_result())
        if results[-1].state in ("failed", "cancelled"):
            break
    return results


class _RunFollower:
    def __init__(self, lake: "Lake", entry_id: str, watch: ProgressCallback | None, last_event: int = 0) -> None:
        self._db = lake.store.db
        self._entry_id = entry_id
        self._watch = watch
        self._last_event = last_event

    def wait_for_result(self) -> RunResult:
        """Wait until the run has ended, and return its result."""
        queue_entry = self.wait_for_end()
        return parse_run_result(
            queue_entry.run, queue_entry.state, queue_entry.branch, queue_entry.commit, queue_entry.outcome
        )

    def wait_for_end(self) -> "QueueEntry":
        """Wait until the run has ended, and return its queue entry."""
        while True:
            queue_entry = self._db.read(lambda connection: run_queue.find(connection, self._entry_id))
            self._report_events()
            if not queue_entry.is_open:
                return queue_entry
            time.sleep(_PAUSE_SECONDS)

    def _report_events(self) -> None:
        new_events = self._db.read(
            lambda connection: run_events.read_after(connection, self._entry_id, self._last_event)
        )
        for run_event in new_events:
            self._last_event = run_event.number
            if self._watch is not None and run_event.event.get("kind") in DISPLAYED_EVENTS:
                self._watch(parse_event(run_event.event))
