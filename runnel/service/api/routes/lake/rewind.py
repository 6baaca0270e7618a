"""Route that rewinds a source. A worker does it, because it needs the project's code."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from runnel.model.operation_request import RewindRequest
from runnel.names import TableName
from runnel.service.api.dependencies import StoreDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.parameters import Ref, RequestBody, SourcePath
from runnel.service.api.problem_json import error_responses
from runnel.service.api.worker_request import ask_worker

router = APIRouter(tags=["sources"])


class RewindRequestBody(RequestBody):
    """Where to go back to, as `runnel rewind` takes it."""

    to: Ref = Field(description="The commit, tag or time to go back to", examples=["main~1"])
    branch: Ref = "main"
    dry_run: bool = Field(default=False, description="Only say what would be read again")


class RewindView(BaseModel):
    """What is read again: `files`, or what arrived since if `state` is true; `drops` if the table is empty then."""

    source: str
    table: str
    to: str
    commit: str | None = Field(description="null for a dry run")
    files: int
    state: bool
    drops: bool


@router.post(
    "/sources/{table}/rewind",
    response_model=RewindView,
    summary="Rewind a source",
    responses=error_responses(400, 404, 409, 413, 503),
)
def rewind_source(
    store: StoreDependency, table: SourcePath, body: RewindRequestBody, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Reset a source's table and position, so that the next run reads again what arrived since. Needs a worker."""
    return ask_worker(store, RewindRequest(str(TableName.parse(table)), body.to, body.branch, body.dry_run))
