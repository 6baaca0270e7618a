"""Plans: what a run would compute, and why. A worker makes them, for they need the project's code."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from runnel.lake.history import branches
from runnel.project.planning.run_request import Wish
from runnel.project.planning.run_request_json import Asked
from runnel.service.api.dependencies import StoreHere
from runnel.service.api.middleware.idempotency import Key
from runnel.service.api.parameters import Body, Ref
from runnel.service.api.problem_json import problems
from runnel.service.api.routes.operations.runs import Selection, Settings
from runnel.service.api.worker_request import answered

router = APIRouter(tags=["runs"])


class Planning(Body):
    """What to plan, as `runnel plan` takes it."""

    select: Selection = Field(default=[], examples=[["+dws.seller_day"]])
    exclude: Selection = Field(default=[])
    branch: Ref = "main"
    full_refresh: bool = False
    set_: Settings = Field(default=[], alias="set", description="Values of parameters, as `name=value`")


class PlanShown(BaseModel):
    """What would be done to which table, and why; `jvm` tells whether Spark is needed."""

    model_config = ConfigDict(extra="allow")

    steps: list[dict[str, Any]]
    jvm: bool


@router.post("/plan", response_model=PlanShown, summary="Plan a run", responses=problems(400, 404, 409, 413, 503))
def plan(store: StoreHere, key: Key = None, body: Planning | None = None) -> dict[str, Any]:
    """Return what a run would compute; nothing is changed. It needs a worker."""
    asked = body or Planning()
    store.db.read(lambda connection: branches.branch(connection, asked.branch))
    wish = Wish(tuple(asked.select), tuple(asked.exclude), asked.branch, asked.full_refresh)
    return answered(store, "plan", Asked(wish, None, tuple(asked.set_)).json(), asked.branch)
