"""Submit requests to the workers through the queue, and follow their runs as if this process computed them."""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from runnel.lake.control import backfills, run_queue, workers
from runnel.lake.control.queue_entry import QueueRequest
from runnel.names import new_run_id
from runnel.project.following.catalog_event_source import CatalogEventSource
from runnel.project.following.run_follower import ReportMessage, RunFollower, follow_chunks
from runnel.run.results.run_result import ProgressCallback, RunResult
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.queue_entry import QueueEntry
    from runnel.model.date_range import DateRange
    from runnel.model.run_request import RunRequest


def has_worker(lake: "Lake") -> bool:
    """Return whether a worker of this project is running."""
    return lake.store.db.read(lambda connection: workers.has_worker(connection, lake.settings.name))


def submit_request(lake: "Lake", request: "RunRequest", *, cause: str = "user") -> str:
    """Queue a request of this user, and return the id of its queue entry."""
    store = lake.store
    store.commit(request.branch)
    trace = tracing.read_traceparent(os.environ)
    entry = QueueRequest(request, store.author, cause=cause, trace=trace)
    entry_id = run_queue.submit(store.db, entry)
    assert entry_id is not None
    return entry_id


def follow_run(
    lake: "Lake", entry_id: str, watch: ProgressCallback | None = None, report: ReportMessage | None = None
) -> RunResult:
    """Wait until a queue entry has ended and return its result, passing its events to `watch`.

    Ctrl-C cancels the run and waits until it has ended; a second one leaves it alone.
    """
    return RunFollower(CatalogEventSource(lake.store.db, entry_id), watch, report).follow()


def cancel_run(lake: "Lake", entry_id: str, *, wait: bool = True) -> "QueueEntry":
    """Cancel a run, and return its queue entry; `wait` until it has ended."""
    db = lake.store.db
    queue_entry = run_queue.cancel(db, entry_id)
    if not wait or not queue_entry.is_open:
        return queue_entry
    RunFollower(CatalogEventSource(db, queue_entry.id)).wait_for_end()
    return db.read(lambda connection: run_queue.find(connection, queue_entry.id))


def submit_backfill(lake: "Lake", request: "RunRequest", chunks: "Sequence[DateRange]") -> str:
    """Queue the chunks of a backfill, and return its id."""
    name, store = new_run_id(datetime.now(UTC)), lake.store
    store.commit(request.branch)
    backfills.create(store.db, name, [request.for_chunk(days) for days in chunks], store.author)
    return name


def follow_backfill(
    lake: "Lake", name: str, watch: ProgressCallback | None = None, report: ReportMessage | None = None
) -> Iterator[RunResult]:
    """Wait until a backfill has ended, and yield the result of each chunk that was started; Ctrl-C cancels it."""
    db = lake.store.db
    chunks = db.read(lambda connection: backfills.find(connection, name)).chunks
    cancel = partial(backfills.cancel, db, name)
    sources = [(backfills.chunk_days(chunk), CatalogEventSource(db, chunk.id, cancel)) for chunk in chunks]
    return follow_chunks(sources, watch, report)
