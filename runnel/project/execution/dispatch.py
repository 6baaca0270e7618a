"""Choose where a run is computed: by the project's service, by a worker that reads the queue, or in this process.

Cheap checks come first, and nothing large is imported before it is needed: a run that has nothing to do stays fast.
"""

from functools import partial
from typing import TYPE_CHECKING

from runnel.project import instance_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.client.lake import Lake
    from runnel.model.run_request import RunRequest
    from runnel.project.following.run_follower import EventSource
    from runnel.run.results.run_result import ProgressCallback, RunResult


def dispatch_run(
    lake: "Lake",
    request: "RunRequest",
    watch: "ProgressCallback | None" = None,
    report: "Callable[[str], None] | None" = None,
    *,
    local: bool = False,
) -> "RunResult":
    """Let a running worker compute, whose Spark is warm; otherwise, or if `local`, compute in this process."""
    source = None if local else _hand_over(lake, request) or _queue(lake, request)
    if source is None:
        from runnel.project.execution.run_project import run_project

        return run_project(lake, request, watch=watch)
    from runnel.project.following.run_follower import RunFollower

    return RunFollower(source, watch, report).follow()


def retry_run(
    lake: "Lake",
    entry_id: str,
    watch: "ProgressCallback | None" = None,
    report: "Callable[[str], None] | None" = None,
) -> "RunResult":
    """Run the request of a queue entry again; raise if the entry is open, or is no run."""
    from runnel.errors import Conflict
    from runnel.lake.control import run_queue

    previous = lake.store.db.read(lambda connection: run_queue.find(connection, entry_id))
    request = previous.run_request
    if previous.is_open:
        what = f"run {previous.id} is still {previous.state}"
        raise Conflict("RUN_OPEN", what, fix=f"`runnel cancel {previous.id}` stops it")
    return dispatch_run(lake, request, watch, report)


def dispatch_backfill(lake: "Lake", request: "RunRequest", days_per_chunk: int | None) -> str | None:
    """Queue a backfill for a running worker and return its id; None if this process has to compute it."""
    if not _has_worker(lake):
        return None
    from runnel.project.execution.follow_run import submit_backfill

    assert request.days is not None
    return submit_backfill(lake, request, request.days.chunks(days_per_chunk))


def _hand_over(lake: "Lake", request: "RunRequest") -> "EventSource | None":
    """Let the service of this project queue a run; the run is followed in the catalog if the service stops."""
    if instance_file.find_instance(lake.settings.home) is None:
        return None
    from runnel.project.execution.local_handover import hand_over_run
    from runnel.project.following.fallback_event_source import FallbackEventSource

    source = hand_over_run(lake.settings, request)
    return FallbackEventSource(source, partial(_open_catalog, lake, source.run)) if source is not None else None


def _queue(lake: "Lake", request: "RunRequest") -> "EventSource | None":
    """Queue a run for a worker, on this or another machine."""
    if not _has_worker(lake):
        return None
    from runnel.project.execution.follow_run import submit_request

    return _open_catalog(lake, submit_request(lake, request))


def _has_worker(lake: "Lake") -> bool:
    from runnel.lake.sqlite_fast_path import may_have_workers

    if not may_have_workers(lake.settings.catalog):
        return False
    from runnel.project.execution.follow_run import has_worker

    return has_worker(lake)


def _open_catalog(lake: "Lake", entry_id: str) -> "EventSource":
    from runnel.project.following.catalog_event_source import CatalogEventSource

    return CatalogEventSource(lake.store.db, entry_id)
