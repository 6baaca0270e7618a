"""Routes for sinks: their positions and errors; deliver to them now, and let them start from scratch."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel

from runnel.lake.control import declarations
from runnel.lake.control.declarations import SinkDeclaration
from runnel.lake.store import Store
from runnel.model.operation_request import DeliveryRequest
from runnel.project.execution.deliver_sinks import find_sink, list_sink_states, reset_sink
from runnel.service.api.dependencies import LakeDependency, StoreDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_single_page
from runnel.service.api.parameters import Ref
from runnel.service.api.problem_json import error_responses
from runnel.service.api.worker_request import ask_worker

router = APIRouter(tags=["sinks"])
SinkPath = Annotated[Ref, Path(description="The name of a sink, or of a table that has one sink.")]


class SinkView(BaseModel):
    """A sink: the last commit delivered, how many commits it is behind, and why it fails."""

    sink: str
    table: str
    branch: str
    kind: str
    state: str
    behind: int
    commit: str | None
    rows: int | None
    at: str | None
    attempts: int
    problem: str | None
    failing_since: str | None
    next_at: str | None


class DeliveryErrorView(BaseModel):
    """Why a delivery failed."""

    code: str
    what: str
    at: str | None
    fix: str | None


class DeliveryView(BaseModel):
    """What a sink accepted, or the error. State `held`: another process delivers to the sink."""

    sink: str
    table: str
    state: str
    rows: int
    commits: int
    seconds: float
    error: DeliveryErrorView | None
    warning: str | None


class SinkResetView(BaseModel):
    """A sink that starts from scratch."""

    sink: str
    state: str


@router.get("/sinks", response_model=ListPage[SinkView], summary="List sinks", responses=error_responses())
def list_sinks(lake: LakeDependency) -> dict[str, Any]:
    """Return the sinks that workers have declared, by name, with position, backlog and error."""
    return build_single_page([sink_state.json() for sink_state in list_sink_states(lake, _read_sinks(lake.store))])


@router.post(
    "/sinks/deliver",
    response_model=ListPage[DeliveryView],
    summary="Deliver to all sinks",
    responses=error_responses(400, 404, 409, 413, 503),
)
def deliver_to_all(store: StoreDependency, key: IdempotencyKey = None) -> dict[str, Any]:
    """Deliver pending changes to all sinks now, also to those that failed. Needs a worker."""
    return build_single_page(ask_worker(store, DeliveryRequest())["items"])


@router.post(
    "/sinks/{sink}/deliver",
    response_model=ListPage[DeliveryView],
    summary="Deliver to a sink",
    responses=error_responses(400, 404, 409, 413, 503),
)
def deliver_to_sink(store: StoreDependency, sink: SinkPath, key: IdempotencyKey = None) -> dict[str, Any]:
    """Deliver pending changes to a sink now, also if it failed. Needs a worker."""
    return build_single_page(ask_worker(store, DeliveryRequest(find_sink(_read_sinks(store), sink).sink))["items"])


@router.post(
    "/sinks/{sink}/reset",
    response_model=SinkResetView,
    summary="Reset a sink",
    responses=error_responses(400, 404, 409, 413),
)
def reset_position(store: StoreDependency, sink: SinkPath, key: IdempotencyKey = None) -> dict[str, Any]:
    """Let a sink start from scratch, so that all rows are delivered to it again."""
    return {"sink": reset_sink(store.db, _read_sinks(store), sink).sink, "state": "reset"}


def _read_sinks(store: Store) -> list[SinkDeclaration]:
    return list(store.db.read(declarations.read_declarations).sinks.values())
