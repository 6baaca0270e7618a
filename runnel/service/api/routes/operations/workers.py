"""Who works for the lake, and how the service is."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from runnel import __version__
from runnel.lake.control import change_signal
from runnel.lake.control import workers as crew
from runnel.service.api.dependencies import LakeHere, StoreHere
from runnel.service.api.pagination import Page, whole
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["service"])


class WorkerShown(BaseModel):
    """A process that computes, or answers."""

    worker: str
    kind: str
    state: str
    started_at: str
    renewed_at: str
    detail: dict[str, Any]


class Depth(BaseModel):
    """How many runs wait, and how many go on."""

    queued: int
    running: int


class Status(BaseModel):
    """How the service is."""

    project: str
    version: str
    queue: Depth
    workers: list[WorkerShown]


@router.get("/workers", response_model=Page[WorkerShown], summary="List workers", responses=problems())
def workers(store: StoreHere) -> dict[str, Any]:
    """Return the processes that are there now, the oldest first."""
    return whole([_json(one) for one in store.db.read(crew.present)])


@router.get("/status", response_model=Status, summary="Show how the service is", responses=problems())
def status(lake: LakeHere) -> dict[str, Any]:
    """Return the version, who works, and how many runs wait and go on."""
    depth, found = lake.store.db.read(lambda connection: (change_signal.depths(connection), crew.present(connection)))
    told = {"project": lake.settings.name, "version": __version__}
    return {**told, "queue": depth, "workers": [_json(one) for one in found]}


def _json(one: crew.Worker) -> dict[str, Any]:
    told = {"worker": one.id, "kind": one.kind, "state": one.state}
    return {**told, "started_at": one.started_at, "renewed_at": one.renewed_at, "detail": dict(one.detail)}
