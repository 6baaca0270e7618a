"""Schedules: what is due when, and pausing one."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from runnel.lake.control import schedules as calendar
from runnel.project.inspection.schedule_list import line_of
from runnel.service.api.dependencies import StoreHere
from runnel.service.api.middleware.idempotency import Key
from runnel.service.api.pagination import Page, whole
from runnel.service.api.parameters import Name
from runnel.service.api.problem_json import problems

if TYPE_CHECKING:
    from runnel.lake.control.schedules import Standing

router = APIRouter(tags=["schedules"])


class ScheduleShown(BaseModel):
    """A schedule: what its project declares, how far it has come, and whether it is paused."""

    model_config = ConfigDict(extra="allow")

    schedule: str
    declared: dict[str, Any]
    cursor: dict[str, Any] = Field(description="What was queued last")
    seen_at: str
    paused_at: str | None
    paused_by: str | None
    when: str
    select: str
    branch: str
    next_at: str | None = Field(description="When it is due next; null where only a change makes it due")
    is_paused: bool
    last_run: str | None
    last_state: str | None
    last_at: str | None
    problem: str | None = Field(description="Why it queues nothing, where it can't be read")
    gone_at: str | None = Field(description="Since when it is no longer declared")


@router.get("/schedules", response_model=Page[ScheduleShown], summary="List schedules", responses=problems())
def schedules(store: StoreHere) -> dict[str, Any]:
    """Return all schedules by name."""
    return whole([_json(store, one) for one in store.db.read(calendar.standing)])


@router.post(
    "/schedules/{name}/pause",
    response_model=ScheduleShown,
    summary="Pause a schedule",
    responses=problems(400, 404, 409, 413),
)
def pause(store: StoreHere, name: Name, key: Key = None) -> dict[str, Any]:
    """Let a schedule queue nothing until it is resumed."""
    return _json(store, calendar.pause(store.db, name, store.author))


@router.post(
    "/schedules/{name}/resume",
    response_model=ScheduleShown,
    summary="Resume a schedule",
    responses=problems(400, 404, 409, 413),
)
def resume(store: StoreHere, name: Name, key: Key = None) -> dict[str, Any]:
    """Let a paused schedule go on."""
    return _json(store, calendar.pause(store.db, name, store.author, resume=True))


def _json(store: StoreHere, one: "Standing") -> dict[str, Any]:
    line = store.db.read(lambda connection: line_of(connection, one, datetime.now(UTC)))
    return {
        "schedule": one.name,
        "declared": dict(one.declared),
        "cursor": dict(one.cursor),
        "seen_at": one.seen_at,
        "paused_at": one.paused_at,
        "gone_at": one.gone_at,
        **line.json(),
    }
