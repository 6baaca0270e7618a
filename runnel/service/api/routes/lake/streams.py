"""Streams, and sources that are read on and on: how they are, and what their batches did."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from runnel.names import TableName
from runnel.service.api.dependencies import LakeHere
from runnel.service.api.pagination import Page, whole
from runnel.service.api.parameters import Branch, Ref, TablePath
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["streams"])
OnBranch = Annotated[Ref | None, Query(description="Only those of this branch.")]
Minutes = Annotated[int, Query(ge=1, le=7 * 24 * 60, description="How far back it goes.")]


class StreamShown(BaseModel):
    """How a stream is. Rates and durations are of the last minute in which there was a batch."""

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


class Streams(BaseModel):
    """All streams."""

    streams: list[StreamShown]


class BatchShown(BaseModel):
    """What a batch did; what was measured depends on what kind of stream it is."""

    model_config = ConfigDict(extra="allow")

    at: str
    commit: str | None


@router.get("/streams", response_model=Streams, summary="Show how streams are", responses=problems())
def streams(lake: LakeHere, branch: OnBranch = None) -> dict[str, Any]:
    """Return how each stream, and each source that is read on and on, is doing."""
    from runnel.project.inspection.stream_health import healths

    return {"streams": [one.json() for one in healths(lake, branch)]}


@router.get(
    "/streams/{table}/series", response_model=Page[BatchShown], summary="Show the batches", responses=problems()
)
def series(lake: LakeHere, table: TablePath, branch: Branch = "main", minutes: Minutes = 60) -> dict[str, Any]:
    """Return what the batches of a table did in the last minutes, oldest first."""
    from runnel.project.inspection.stream_health import series as measured

    found = measured(lake, TableName.parse(table), branch, minutes)
    return whole([{"at": one.at, "commit": one.commit, **one.detail} for one in found])
