"""Runs: asking for one, what became of each, stopping and repeating one."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from runnel.client.json_views.run import entry_json, item_json, whole_json
from runnel.errors import Conflict, Mistake
from runnel.lake.control import run_queue, workers
from runnel.lake.control.run_history import Filter, listed, one
from runnel.lake.control.run_queue import Entry, Queued
from runnel.lake.control.tokens import ADMIN
from runnel.lake.history import branches
from runnel.project.planning.run_request import Wish
from runnel.project.planning.run_request_json import Asked
from runnel.service.api.dependencies import Caller, LakeHere, StoreHere
from runnel.service.api.middleware.idempotency import Key
from runnel.service.api.pagination import Page, page
from runnel.service.api.parameters import DEFAULT, PREFIX, Body, Cursor, Limit, Ref, RunId, Text
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["runs"])
Setting = Annotated[str, StringConstraints(max_length=2000, pattern=r"^[A-Za-z_][A-Za-z0-9_]*=[^\x00]*$")]
Settings = Annotated[list[Setting], Field(max_length=1000)]
Selection = Annotated[list[Text], Field(max_length=1000)]


class Wanted(Body):
    """What to run, as `runnel run` takes it."""

    select: Selection = Field(default=[], examples=[["+dws.seller_day"]])
    exclude: Selection = Field(default=[])
    branch: Ref = "main"
    full_refresh: bool = False
    verify: bool = False
    message: Text | None = None
    set_: Settings = Field(default=[], alias="set", description="Values of parameters, as `name=value`")
    author: Text | None = Field(default=None, description="Who asks, where a token of scope admin asks for somebody")
    now: bool = Field(default=False, description="Refuse where no worker is there to take it")


class RunShown(BaseModel):
    """A run. What only the queue knows is missing where a command ran it by itself."""

    run: str
    state: str = Field(description="queued, running, succeeded, failed, cancelled, nothing or lost")
    branch: str
    author: str
    started_at: str | None
    ended_at: str | None
    seconds: float | None
    commit: str | None
    tables: list[str]
    kind: str | None = None
    cause: str | None = None
    queued_at: str | None = None
    attempt: int | None = None
    priority: int | None = None
    worker: str | None = None
    cancel_at: str | None = None
    error: dict[str, Any] | None = None


class Step(BaseModel):
    """What a run did to a table."""

    model_config = ConfigDict(extra="allow")

    table: str
    action: str
    state: str
    spent: dict[str, float] = Field(default={}, description="Seconds of each phase")
    waits: dict[str, float] = Field(default={}, description="Seconds of waiting, by what it waited for")
    spark: dict[str, Any] | None = Field(default=None, description="What Spark did: tasks, bytes, spill, skew")


class RunWhole(RunShown):
    """A run with its steps, what it was made with, and its attempts."""

    code: str | None
    git: dict[str, Any] | None
    packages: dict[str, Any] | None
    steps: list[Step]
    spent: dict[str, float] = Field(description="Seconds of each phase, of all steps and the run itself")
    timeline: dict[str, float] = Field(description="Seconds of what the run did, one thing after another")
    wish: dict[str, Any] | None
    outcome: dict[str, Any] | None
    attempts: list[RunShown]


State = Annotated[Ref | None, Query(description="Only runs in this state.")]
Cause = Annotated[Ref | None, Query(description="Only runs for this reason, such as `schedule/nightly`.")]
OnBranch = Annotated[Ref | None, Query(description="Only runs on this branch.")]


@router.get(
    "/runs", response_model=Page[RunShown], response_model_exclude_unset=True, summary="List runs", responses=problems()
)
def runs(
    store: StoreHere,
    state: State = None,
    cause: Cause = None,
    branch: OnBranch = None,
    limit: Limit = DEFAULT,
    before: Cursor = None,
) -> dict[str, Any]:
    """Return what was queued and what commands ran by themselves, newest first."""
    wanted = Filter(state, cause, branch)
    found = store.db.read(lambda connection: listed(connection, wanted, limit, before))
    return page(found, limit, lambda one: one.id, item_json)


@router.post(
    "/runs", status_code=202, response_model=RunShown, summary="Ask for a run", responses=problems(400, 404, 409, 413)
)
def ask(
    request: Request,
    response: Response,
    store: StoreHere,
    lake: LakeHere,
    caller: Caller,
    key: Key = None,
    body: Wanted | None = None,
) -> dict[str, Any]:
    """Queue a run; a worker takes it. `Location` says where to look for it."""
    asked = body or Wanted()
    store.db.read(lambda connection: branches.branch(connection, asked.branch))
    wish = Wish(tuple(asked.select), tuple(asked.exclude), asked.branch, asked.full_refresh, asked.verify)
    if asked.author is not None and caller.scope != ADMIN:
        what = f"the token `{caller.name}` may not ask in the name of somebody else"
        raise Mistake("AUTHOR_FORBIDDEN", what, fix=f"leave `author` out, or use a token of scope {ADMIN}")
    if asked.now and not store.db.read(lambda connection: workers.are_there(connection, lake.settings.name)):
        fix = "`runnel worker` starts one; without `now` the run waits for one"
        raise Conflict("NO_WORKER", "no worker is there to take the run", fix=fix)
    author = asked.author or store.author
    entry = Entry(Asked(wish, asked.message, tuple(asked.set_)).json(), author, asked.branch)
    return _submitted(request, response, store, entry)


@router.get("/runs/{run}", response_model=RunWhole, summary="Show a run", responses=problems(404))
def run(store: StoreHere, run: RunId) -> dict[str, Any]:
    """Return what became of a run: its state, its attempts, and what it did to each table."""
    return whole_json(store.db.read(lambda connection: one(connection, run)))


@router.post(
    "/runs/{run}/cancel", response_model=RunShown, summary="Stop a run", responses=problems(400, 404, 409, 413)
)
def cancel(store: StoreHere, run: RunId, key: Key = None) -> dict[str, Any]:
    """Stop a run: one that waits at once, one that runs as soon as its worker hears of it."""
    return entry_json(run_queue.cancel(store.db, _queued(store, run).id))


@router.post(
    "/runs/{run}/retry",
    status_code=202,
    response_model=RunShown,
    summary="Repeat a run",
    responses=problems(400, 404, 409, 413),
)
def retry(request: Request, response: Response, store: StoreHere, run: RunId, key: Key = None) -> dict[str, Any]:
    """Queue the same wish once more, as a run of its own."""
    found = _queued(store, run)
    if found.is_open:
        what = f"run {found.id} has not ended: it is {found.state}"
        raise Conflict("RUN_OPEN", what, fix="wait for its end, or cancel it")
    wish = {name: value for name, value in found.wish.items() if name != "trace"}
    again = Entry(wish, store.author, found.branch, found.kind, retries=found.retries)
    return _submitted(request, response, store, replace(again, timeout_seconds=found.timeout_seconds))


def _queued(store: StoreHere, text: str) -> Queued:
    """Return the entry of a run that was queued."""
    found = store.db.read(lambda connection: one(connection, text))
    if found.entry is None:
        what = f"run {found.id} was not queued: a command ran it by itself"
        raise Mistake("RUN_NOT_QUEUED", what, fix="repeat or stop the command")
    return found.entry


def _submitted(request: Request, response: Response, store: StoreHere, entry: Entry) -> dict[str, Any]:
    """Queue an entry. A request with a key is queued once, even where its first answer was lost with the service."""
    key = getattr(request.state, "key", None)
    slot = f"request/{key}" if key else None
    run_queue.submit(store.db, replace(entry, slot=slot))
    found = store.db.read(lambda c: run_queue.in_slot(c, slot) if slot else run_queue.find(c, entry.id))
    response.headers["Location"] = f"{PREFIX}/runs/{found.id}"
    return entry_json(found)
