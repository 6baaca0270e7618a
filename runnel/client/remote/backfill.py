"""Start a backfill on a service's workers, and follow it chunk by chunk."""

from typing import TYPE_CHECKING

from runnel.client.remote.rest_event_source import RestEventSource
from runnel.project.execution.backfill import BackfillResult
from runnel.project.following.run_follower import follow_chunks

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection
    from runnel.model.run_request import RunRequest
    from runnel.run.results.run_result import ProgressCallback


def backfill(
    connection: "ServiceConnection",
    request: "RunRequest",
    chunk_days: int | None,
    watch: "ProgressCallback | None" = None,
) -> BackfillResult:
    """Submit a backfill of the days of a request, wait for its end, and return its result; raise if a step fails.

    Ctrl-C cancels it.
    """
    assert request.days is not None
    chunks = request.days.chunks(chunk_days)
    created = connection.post("/backfills", request.to_backfill_body(chunk_days))
    cancel_path = f"/backfills/{created['backfill']}/cancel"
    sources = [
        RestEventSource(connection, chunk["run"], reads_events=watch is not None, cancel_path=cancel_path)
        for chunk in created["chunks"]
    ]
    results = follow_chunks(list(zip(chunks, sources, strict=True)), watch)
    return BackfillResult.from_runs(request.days, chunks, [result.raise_for_errors() for result in results])
