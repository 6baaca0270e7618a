"""Route for plans: what a run would compute, and why. A worker computes them, because they need the project's code."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from runnel.lake.history import branches
from runnel.model.run_request import RunRequest
from runnel.model.worker_request import PlanRequest
from runnel.service.api.dependencies import StoreDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.parameters import Ref, RequestBody
from runnel.service.api.problem_json import error_responses
from runnel.service.api.routes.operations.runs import ParameterSettings, Selection
from runnel.service.api.worker_request import ask_worker

router = APIRouter(tags=["runs"])


class PlanRequestBody(RequestBody):
    """What to plan, as `runnel plan` takes it."""

    select: Selection = Field(default=[], examples=[["+dws.seller_day"]])
    exclude: Selection = Field(default=[])
    branch: Ref = "main"
    full_refresh: StrictBool = False
    set_: ParameterSettings = Field(default=[], alias="set", description="Values of parameters, as `name=value`")


class PlanView(BaseModel):
    """What would be done to which table, and why; `jvm` is true if Spark is needed."""

    model_config = ConfigDict(extra="allow")

    steps: list[dict[str, Any]]
    jvm: bool


@router.post("/plan", response_model=PlanView, summary="Plan a run", responses=error_responses(400, 404, 409, 413, 503))
def plan_run(store: StoreDependency, key: IdempotencyKey = None, body: PlanRequestBody | None = None) -> dict[str, Any]:
    """Return what a run would compute, without changing anything. Needs a worker."""
    options = body or PlanRequestBody()
    store.db.read(lambda connection: branches.get_branch(connection, options.branch))
    run_request = RunRequest.create(
        options.select, options.exclude, options.branch, options.full_refresh, overrides=options.set_
    )
    return ask_worker(store, PlanRequest(run_request))
