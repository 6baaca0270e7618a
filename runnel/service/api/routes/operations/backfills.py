"""Routes for backfills: submit, list, show, pause, resume and cancel."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, StringConstraints

from runnel.lake.control import backfills as catalog_backfills
from runnel.lake.history import branches
from runnel.names import new_run_id
from runnel.project.execution.backfill import build_backfill_request
from runnel.service.api.dependencies import StoreDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_single_page
from runnel.service.api.parameters import API_PREFIX, DEFAULT_LIMIT, Limit, NamePath, Ref, RequestBody
from runnel.service.api.problem_json import error_responses
from runnel.service.api.routes.operations.runs import ParameterSettings, Selection

router = APIRouter(tags=["backfills"])


class BackfillRequestBody(RequestBody):
    """Which tables and days to compute again, as `runnel backfill` takes them; both days are included."""

    select: Selection = Field(min_length=1, examples=[["dws.seller_day"]])
    first: date = Field(alias="from")
    last: date = Field(alias="to")
    chunk: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}d$")] | None = Field(
        default=None, description="Days per run, such as `7d`"
    )
    branch: Ref = "main"
    set_: ParameterSettings = Field(default=[], alias="set", description="Values of parameters, as `name=value`")


class BackfillChunkView(BaseModel):
    """Some days, and the run that computes them."""

    run: str
    first: str = Field(alias="from")
    last: str = Field(alias="to")
    state: str


class BackfillView(BaseModel):
    """A backfill and its chunks, in their order."""

    backfill: str
    branch: str
    state: str = Field(description="running, paused, succeeded, failed or cancelled")
    author: str
    made_at: str
    select: list[str]
    chunks: list[BackfillChunkView]


@router.get("/backfills", response_model=ListPage[BackfillView], summary="List backfills", responses=error_responses())
def list_backfills(store: StoreDependency, limit: Limit = DEFAULT_LIMIT) -> dict[str, Any]:
    """Return the newest backfills, newest first."""
    return build_single_page(
        [
            record.json()
            for record in store.db.read(lambda connection: catalog_backfills.list_backfills(connection, limit))
        ]
    )


@router.post(
    "/backfills",
    status_code=202,
    response_model=BackfillView,
    summary="Submit a backfill",
    responses=error_responses(400, 404, 409, 413),
)
def submit_backfill(
    request: Request, response: Response, store: StoreDependency, body: BackfillRequestBody, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Queue the chunks of a backfill; workers compute them one after the other."""
    store.db.read(lambda connection: branches.get_branch(connection, body.branch))
    run_request, days_per_chunk = build_backfill_request(
        body.select, body.first, body.last, chunk=body.chunk, branch=body.branch
    )
    assert run_request.days is not None
    day_chunks, run_request = run_request.days.chunks(days_per_chunk), replace(run_request, overrides=tuple(body.set_))
    chunks = [run_request.for_chunk(days) for days in day_chunks]
    request_key = getattr(request.state, "key", None)
    name = catalog_backfills.create(store.db, new_run_id(datetime.now(UTC)), chunks, store.author, request_key)
    response.headers["Location"] = f"{API_PREFIX}/backfills/{name}"
    return store.db.read(lambda connection: catalog_backfills.find(connection, name)).json()


@router.get("/backfills/{name}", response_model=BackfillView, summary="Show a backfill", responses=error_responses(404))
def show_backfill(store: StoreDependency, name: NamePath) -> dict[str, Any]:
    """Return a backfill with the state of its chunks."""
    return store.db.read(lambda connection: catalog_backfills.find(connection, name)).json()


@router.post(
    "/backfills/{name}/pause",
    response_model=BackfillView,
    summary="Pause a backfill",
    responses=error_responses(400, 404, 409, 413),
)
def pause_backfill(store: StoreDependency, name: NamePath, key: IdempotencyKey = None) -> dict[str, Any]:
    """Hold back later chunks; the running one is finished."""
    return catalog_backfills.pause(store.db, name).json()


@router.post(
    "/backfills/{name}/resume",
    response_model=BackfillView,
    summary="Resume a backfill",
    responses=error_responses(400, 404, 409, 413),
)
def resume_backfill(store: StoreDependency, name: NamePath, key: IdempotencyKey = None) -> dict[str, Any]:
    """Continue a backfill, failed chunks first."""
    return catalog_backfills.resume(store.db, name).json()


@router.post(
    "/backfills/{name}/cancel",
    response_model=BackfillView,
    summary="Cancel a backfill",
    responses=error_responses(400, 404, 409, 413),
)
def cancel_backfill(store: StoreDependency, name: NamePath, key: IdempotencyKey = None) -> dict[str, Any]:
    """Run no further chunks, and stop the running one."""
    return catalog_backfills.cancel(store.db, name).json()
