"""Routes for streams and continuously read sources: their health, and their batches."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from runnel.names import TableName
from runnel.service.api.dependencies import LakeDependency
from runnel.service.api.pagination import ListPage, build_single_page
from runnel.service.api.parameters import BranchQuery, Ref, TablePath
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["streams"])
BranchFilterQuery = Annotated[Ref | None, Query(description="Only streams of this branch.")]
Minutes = Annotated[int, Query(ge=1, le=7 * 24 * 60, description="Number of minutes to go back.")]


class StreamView(BaseModel):
    """The health of a stream. Rates and durations are of the last minute with a batch."""

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
    behind_seconds: float | None
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
