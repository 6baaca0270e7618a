"""Routes for workers and the status of the service."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from runnel import __version__
from runnel.lake.control import change_signal
from runnel.lake.control import workers as catalog_workers
from runnel.service.api.dependencies import LakeDependency, StoreDependency
from runnel.service.api.pagination import ListPage, build_single_page
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["service"])


class WorkerView(BaseModel):
    """A worker process, or a server process."""

    worker: str
    kind: str
    state: str
    started_at: str
    renewed_at: str
    detail: dict[str, Any]


class QueueDepthView(BaseModel):
    """How many runs are queued, and how many are running."""

    queued: int
    running: int


class ServiceStatusView(BaseModel):
    """The status of the service."""

    project: str
    version: str
    queue: QueueDepthView
    workers: list[WorkerView]


@router.get("/workers", response_model=ListPage[WorkerView], summary="List workers", responses=error_responses())
def list_workers(store: StoreDependency) -> dict[str, Any]:
    """Return the running processes, oldest first."""
    return build_single_page([_worker_to_json(worker) for worker in store.db.read(catalog_workers.list_alive)])


@router.get(
    "/status", response_model=ServiceStatusView, summary="Show the status of the service", responses=error_responses()
)
def show_status(lake: LakeDependency) -> dict[str, Any]:
    """Return the version, the running processes, and how many runs are queued and running."""
    depth, present_workers = lake.store.db.read(
        lambda connection: (change_signal.count_open_requests(connection), catalog_workers.list_alive(connection))
    )
    summary = {"project": lake.settings.name, "version": __version__}
    return {**summary, "queue": depth, "workers": [_worker_to_json(worker) for worker in present_workers]}


def _worker_to_json(worker: catalog_workers.WorkerRecord) -> dict[str, Any]:
    identity = {"worker": worker.id, "kind": worker.kind, "state": worker.state}
    return {**identity, "started_at": worker.started_at, "renewed_at": worker.renewed_at, "detail": dict(worker.detail)}
