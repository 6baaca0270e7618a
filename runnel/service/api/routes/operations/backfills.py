"""Backfills: asking for one, how far each is, pausing, resuming and cancelling one."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, StringConstraints

from runnel.lake.control import backfills as kept
from runnel.lake.history import branches
from runnel.names import new_run_id
from runnel.project.execution.backfill import wished
from runnel.project.planning.run_request_json import Asked
from runnel.service.api.dependencies import StoreHere
from runnel.service.api.middleware.idempotency import Key
from runnel.service.api.pagination import Page, whole
from runnel.service.api.parameters import DEFAULT, PREFIX, Body, Limit, Name, Ref
from runnel.service.api.problem_json import problems
from runnel.service.api.routes.operations.runs import Selection, Settings

router = APIRouter(tags=["backfills"])
_MOST_CHUNKS = 10_000


class Range(Body):
    """Which tables and days to compute again, as `runnel backfill` takes them; both days are included."""

    select: Selection = Field(min_length=1, examples=[["dws.seller_day"]])
    first: date = Field(alias="from")
    last: date = Field(alias="to")
    chunk: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}d$")] | None = Field(
        default=None, description="How many days a run has, such as `7d`"
    )
    branch: Ref = "main"
    set_: Settings = Field(default=[], alias="set", description="Values of parameters, as `name=value`")


class Chunk(BaseModel):
    """Some days, and the run that computes them."""

    run: str
    first: str = Field(alias="from")
    last: str = Field(alias="to")
    state: str


class BackfillShown(BaseModel):
    """A backfill and its chunks, in their order."""

    backfill: str
    branch: str
    state: str = Field(description="running, paused, succeeded, failed or cancelled")
    author: str
    made_at: str
    select: list[str]
    chunks: list[Chunk]


@router.get("/backfills", response_model=Page[BackfillShown], summary="List backfills", responses=problems())
def backfills(store: StoreHere, limit: Limit = DEFAULT) -> dict[str, Any]:
    """Return the newest backfills, newest first."""
    return whole([one.json() for one in store.db.read(lambda connection: kept.backfills(connection, limit))])


@router.post(
    "/backfills",
    status_code=202,
    response_model=BackfillShown,
    summary="Ask for a backfill",
    responses=problems(400, 404, 409, 413),
)
def ask(request: Request, response: Response, store: StoreHere, body: Range, key: Key = None) -> dict[str, Any]:
    """Queue the chunks of a backfill; workers compute them one after the other."""
    store.db.read(lambda connection: branches.branch(connection, body.branch))
    wish, number = wished(body.select, body.first, body.last, chunk=body.chunk, branch=body.branch)
    assert wish.days is not None
    overrides = tuple(body.set_)
    chunks = [
        Asked(replace(wish, days=days), f"backfill {days}", overrides).json() for days in wish.days.chunks(number)
    ]
    asked_by = getattr(request.state, "key", None)
    name = kept.make(store.db, new_run_id(datetime.now(UTC)), chunks, store.author, body.branch, asked_by)
    response.headers["Location"] = f"{PREFIX}/backfills/{name}"
    return store.db.read(lambda connection: kept.find(connection, name)).json()


@router.get("/backfills/{name}", response_model=BackfillShown, summary="Show a backfill", responses=problems(404))
def backfill(store: StoreHere, name: Name) -> dict[str, Any]:
    """Return how far a backfill is."""
    return store.db.read(lambda connection: kept.find(connection, name)).json()


@router.post(
    "/backfills/{name}/pause",
    response_model=BackfillShown,
    summary="Pause a backfill",
    responses=problems(400, 404, 409, 413),
)
def pause(store: StoreHere, name: Name, key: Key = None) -> dict[str, Any]:
    """Let later chunks wait; the one that goes on is finished."""
    return kept.pause(store.db, name).json()


@router.post(
    "/backfills/{name}/resume",
    response_model=BackfillShown,
    summary="Resume a backfill",
    responses=problems(400, 404, 409, 413),
)
def resume(store: StoreHere, name: Name, key: Key = None) -> dict[str, Any]:
    """Go on, with what failed first."""
    return kept.resume(store.db, name).json()


@router.post(
    "/backfills/{name}/cancel",
    response_model=BackfillShown,
    summary="Cancel a backfill",
    responses=problems(400, 404, 409, 413),
)
def cancel(store: StoreHere, name: Name, key: Key = None) -> dict[str, Any]:
    """Run no further chunk, and stop the one that goes on."""
    return kept.cancel(store.db, name).json()
