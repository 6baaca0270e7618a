"""Routes for runs: submit, list, show, cancel and retry."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from runnel.client.json_views.run import entry_json, item_json, run_detail_json
from runnel.errors import Conflict, Mistake
from runnel.lake.control import run_queue, workers
from runnel.lake.control.queue_entry import QueueEntry, QueueRequest, require_run
from runnel.lake.control.run_history import RunFilter, find_run_record, list_run_records
from runnel.lake.control.tokens import ADMIN
from runnel.lake.history import branches
from runnel.model.run_request import RunRequest
from runnel.service.api.dependencies import Caller, LakeDependency, StoreDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_page
from runnel.service.api.parameters import API_PREFIX, DEFAULT_LIMIT, Cursor, Limit, Ref, RequestBody, RunId, Text
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["runs"])
ParameterSetting = Annotated[str, StringConstraints(max_length=2000, pattern=r"^[A-Za-z_][A-Za-z0-9_]*=[^\x00]*$")]
ParameterSettings = Annotated[list[ParameterSetting], Field(max_length=1000)]
Selection = Annotated[list[Text], Field(max_length=1000)]


class RunRequestBody(RequestBody):
    """What to run, as `runnel run` takes it."""

    select: Selection = Field(default=[], examples=[["+dws.seller_day"]])
    exclude: Selection = Field(default=[])
    branch: Ref = "main"
    full_refresh: bool = False
    verify: bool = False
    message: Text | None = None
    set_: ParameterSettings = Field(default=[], alias="set", description="Values of parameters, as `name=value`")
    author: Text | None = Field(
        default=None, description="The author of the run; only a token of scope admin may name another"
    )
    now: bool = Field(default=False, description="Refuse the run if no worker is running")


class RunView(BaseModel):
    """A run. Fields of the queue are missing if a command ran it without the queue."""

    run: str
    state: str = Field(description="queued, running, succeeded, failed, cancelled, nothing or lost")
    branch: str
    author: str
    started_at: str | None
    ended_at: str | None
    seconds: float | None
    commit: str | None
    tables: list[str]
    scheduled_at: str | None = Field(default=None, description="The time of its schedule for which it was queued")
    kind: str | None = None
    cause: str | None = None
    queued_at: str | None = None
    attempt: int | None = None
    priority: int | None = None
    worker: str | None = None
    cancel_at: str | None = None
    error: dict[str, Any] | None = None


class StepView(BaseModel):
    """What a run did to a table."""

    model_config = ConfigDict(extra="allow")

    table: str
    action: str
    state: str
    spent: dict[str, float] = Field(default={}, description="Seconds of each phase")
    waits: dict[str, float] = Field(default={}, description="Seconds of waiting, by what it waited for")
    spark: dict[str, Any] | None = Field(default=None, description="What Spark did: tasks, bytes, spill, skew")


class AttemptView(RunView):
    """An attempt of a run, with its worker and its error."""

    log: str = Field(description="Its log file, below the folder `.runnel` of the project on the worker's machine")


class RunDetailView(RunView):
    """A run with its steps, its code, git commit and packages, and its attempts."""

    code: str | None
    git: dict[str, Any] | None
    packages: dict[str, Any] | None
    steps: list[StepView]
    spent: dict[str, float] = Field(description="Seconds of each phase, of all steps and the run itself")
    timeline: dict[str, float] = Field(description="Seconds of the stages of the run, in order")
    wish: dict[str, Any] | None
    outcome: dict[str, Any] | None
    attempts: list[AttemptView]


StateQuery = Annotated[Ref | None, Query(description="Only runs in this state.")]
CauseQuery = Annotated[Ref | None, Query(description="Only runs with this cause, such as `schedule/nightly`.")]
BranchFilterQuery = Annotated[Ref | None, Query(description="Only runs on this branch.")]


@router.get(
    "/runs",
    response_model=ListPage[RunView],
    response_model_exclude_unset=True,
    summary="List runs",
    responses=error_responses(),
)
def list_runs(
    store: StoreDependency,
    state: StateQuery = None,
    cause: CauseQuery = None,
    branch: BranchFilterQuery = None,
    limit: Limit = DEFAULT_LIMIT,
    before: Cursor = None,
) -> dict[str, Any]:
    """Return queued runs, and runs of commands without the queue, newest first."""
    run_filter = RunFilter(state, cause, branch)
    records = store.db.read(lambda connection: list_run_records(connection, run_filter, limit, before))
    return build_page(records, limit, lambda record: record.id, item_json)


@router.post(
    "/runs",
    status_code=202,
    response_model=RunView,
    summary="Submit a run",
    responses=error_responses(400, 404, 409, 413),
)
def submit_run(
    request: Request,
    response: Response,
    store: StoreDependency,
    lake: LakeDependency,
    caller: Caller,
    key: IdempotencyKey = None,
    body: RunRequestBody | None = None,
) -> dict[str, Any]:
    """Queue a run for a worker. The header `Location` has its URL."""
    options = body or RunRequestBody()
    store.db.read(lambda connection: branches.get_branch(connection, options.branch))
    if options.author is not None and caller.scope != ADMIN:
        what = f"the token `{caller.name}` may not submit runs for another author"
        raise Mistake("AUTHOR_FORBIDDEN", what, fix=f"leave `author` out, or use a token of scope {ADMIN}")
    if options.now and not store.db.read(lambda connection: workers.has_worker(connection, lake.settings.name)):
        fix = "`runnel worker` starts one; without `now` the run waits for one"
        raise Conflict("NO_WORKER", "no worker is running that could take the run", fix=fix)
    run_request = RunRequest.create(
        options.select,
        options.exclude,
        options.branch,
        options.full_refresh,
        options.verify,
        message=options.message,
        overrides=options.set_,
    )
    return _submit_entry(request, response, store, QueueRequest(run_request, options.author or store.author))


@router.get("/runs/{run}", response_model=RunDetailView, summary="Show a run", responses=error_responses(404))
def show_run(store: StoreDependency, run: RunId) -> dict[str, Any]:
    """Return a run: its state, its attempts, and what it did to each table."""
    return run_detail_json(store.db.read(lambda connection: find_run_record(connection, run)))


@router.post(
    "/runs/{run}/cancel", response_model=RunView, summary="Stop a run", responses=error_responses(400, 404, 409, 413)
)
def cancel_run(store: StoreDependency, run: RunId, key: IdempotencyKey = None) -> dict[str, Any]:
    """Stop a run: a queued one at once, a running one as soon as its worker notices."""
    return entry_json(run_queue.cancel(store.db, _find_entry(store, run).id))


@router.post(
    "/runs/{run}/retry",
    status_code=202,
    response_model=RunView,
    summary="Repeat a run",
    responses=error_responses(400, 404, 409, 413),
)
def retry_run(
    request: Request, response: Response, store: StoreDependency, run: RunId, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Queue the same request again, as a new run."""
    entry = _find_entry(store, run)
    run_request = require_run(entry)
    if entry.is_open:
        what = f"run {entry.id} has not ended: it is {entry.state}"
        raise Conflict("RUN_OPEN", what, fix="wait for its end, or cancel it")
    new_entry = QueueRequest(
        run_request,
        store.author,
        retries=entry.retries,
        timeout_seconds=entry.timeout_seconds,
        schedule_slot=entry.schedule_slot,
    )
    return _submit_entry(request, response, store, new_entry)


def _find_entry(store: StoreDependency, run_id: str) -> QueueEntry:
    """Return the queue entry of a run; raise if the run was not queued."""
    record = store.db.read(lambda connection: find_run_record(connection, run_id))
    if record.entry is None:
        what = f"run {record.id} was not queued: a command ran it directly"
        raise Mistake("RUN_NOT_QUEUED", what, fix="repeat or stop the command")
    return record.entry


def _submit_entry(request: Request, response: Response, store: StoreDependency, entry: QueueRequest) -> dict[str, Any]:
    """Queue an entry. A request with a key is queued once, even if the service crashed before it answered."""
    key = getattr(request.state, "key", None)
    slot = f"request/{key}" if key else None
    run_queue.submit(store.db, replace(entry, slot=slot))
    stored_entry = store.db.read(lambda c: run_queue.find_by_slot(c, slot) if slot else run_queue.find(c, entry.id))
    response.headers["Location"] = f"{API_PREFIX}/runs/{stored_entry.id}"
    return entry_json(stored_entry)
