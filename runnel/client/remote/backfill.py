"""Start a backfill on a service's workers, and follow it chunk by chunk."""

from typing import TYPE_CHECKING

from runnel.client.remote.follow_run import RemoteRunFollower, read_ended_run
from runnel.project.execution.backfill import BackfillResult
from runnel.run.results.run_result import Event, ProgressCallback, RunResult, RunState

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection
    from runnel.model.run_request import RunRequest


def backfill(
    connection: "ServiceConnection",
    request: "RunRequest",
    chunk_days: int | None,
    watch: ProgressCallback | None = None,
) -> BackfillResult:
    """Submit a backfill of the days of a request, wait for its end, and return its result; raise if a step fails.

    Ctrl-C cancels it.
    """
    assert request.days is not None
    created = connection.post("/backfills", request.to_backfill_body(chunk_days))
    chunks, runs = request.days.chunks(chunk_days), list[RunResult]()
    for position, (days, chunk_json) in enumerate(zip(chunks, created["chunks"], strict=True), 1):
        if watch is not None and len(chunks) > 1:
            watch(Event("note", f"chunk {position} of {len(chunks)}: {days}"))
        follower = RemoteRunFollower(connection, chunk_json["run"], watch)
        try:
            run_json = follower.wait_for_end()
        except KeyboardInterrupt:
            connection.post(f"/backfills/{created['backfill']}/cancel")
            run_json = follower.wait_for_end()
        runs.append(read_ended_run(run_json).raise_for_errors())
        if runs[-1].state in ("failed", "cancelled"):
            return BackfillResult(request.days, chunks, tuple(runs), runs[-1].state)
    state: RunState = "succeeded" if any(run.commit for run in runs) else "nothing"
    return BackfillResult(request.days, chunks, tuple(runs), state)
