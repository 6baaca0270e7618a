"""Routes for streams and continuously read sources: their health, their batches, and starting a stream from scratch."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from runnel.names import TableName
from runnel.service.api.dependencies import LakeDependency, StoreDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_single_page
from runnel.service.api.parameters import BranchQuery, Ref, RequestBody, TablePath
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["streams"])
BranchFilterQuery = Annotated[Ref | None, Query(description="Only streams of this branch.")]
Minutes = Annotated[int, Query(ge=1, le=7 * 24 * 60, description="Number of minutes to go back.")]


class StreamView(BaseModel):
    """The health of a stream. Rates, durations and counts are of the last minute.

    `behind_*` is what it has not read, null if nobody knows; `looked_at` is when a worker saw that in another system.
    """

    table: str
    branch: str
    kind: str
    state: str
    since: str
    problem: str | None
    batch_at: str | None
    batches: int
    rows_per_second: float
    batch_ms: float | None
    parts_ms: dict[str, float]
    rows: int
    set_aside: int
    behind_rows: int | None
    behind_files: int | None
    behind_bytes: int | None
    behind_seconds: float | None
    looked_at: str | None
    delay_ms: float | None
    watermark: str | None
    state_rows: int
    state_bytes: int
    late_rows: int
    ahead_rows: int
    warnings: list[str]


class StreamListView(BaseModel):
    """All streams."""

    streams: list[StreamView]


class StreamResetBody(RequestBody):
    """Where the stream runs."""

    branch: Ref = "main"


class StreamResetView(BaseModel):
    """A stream that starts from scratch."""

    table: str
    branch: str
    state: str


class BatchView(BaseModel):
    """What a batch did; the metrics depend on the kind of stream."""

    model_config = ConfigDict(extra="allow")

    at: str
    commit: str | None


@router.get("/streams", response_model=StreamListView, summary="Show the state of streams", responses=error_responses())
def list_streams(lake: LakeDependency, branch: BranchFilterQuery = None) -> dict[str, Any]:
    """Return the health of each stream and each continuously read source."""
    from runnel.project.inspection.stream_health import list_stream_health

    return {"streams": [health.json() for health in list_stream_health(lake, branch)]}


@router.get(
    "/streams/{table}/series",
    response_model=ListPage[BatchView],
    summary="Show the batches",
    responses=error_responses(),
)
def list_batches(
    lake: LakeDependency, table: TablePath, branch: BranchQuery = "main", minutes: Minutes = 60
) -> dict[str, Any]:
    """Return what the batches of a table did in the last minutes, oldest first."""
    from runnel.project.inspection.stream_health import read_measures

    batches = read_measures(lake, TableName.parse(table), branch, minutes)
    return build_single_page([{"at": batch.at, "commit": batch.commit, **batch.detail} for batch in batches])


@router.post(
    "/streams/{table}/reset",
    response_model=StreamResetView,
    summary="Reset a stream",
    responses=error_responses(400, 404, 409, 413),
)
def reset_stream(
    store: StoreDependency, table: TablePath, body: StreamResetBody | None = None, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Let a stream start from scratch, with all existing rows; they replace the rows that it has written so far."""
    from runnel.project.execution.run_streams import reset_stream

    branch = body.branch if body else "main"
    return {"table": str(reset_stream(store, table, branch).table), "branch": branch, "state": "reset"}
