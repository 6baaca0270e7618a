"""Routes for schedules: list, pause and resume."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from runnel.lake.control import schedules as catalog_schedules
from runnel.project.inspection.schedule_list import build_schedule_status
from runnel.service.api.dependencies import StoreDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_single_page
from runnel.service.api.parameters import NamePath
from runnel.service.api.problem_json import error_responses

if TYPE_CHECKING:
    from runnel.lake.control.schedules import ScheduleRecord

router = APIRouter(tags=["schedules"])


class ScheduleView(BaseModel):
    """A schedule: its declaration, what it queued last, and whether it is paused."""

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
    next_at: str | None = Field(description="When it is due next; null if only a change makes it due")
    is_paused: bool
    last_run: str | None
    last_state: str | None
    last_at: str | None
    problem: str | None = Field(description="Why it queues nothing, if it can't be read")
    gone_at: str | None = Field(description="Since when it is no longer declared")


@router.get("/schedules", response_model=ListPage[ScheduleView], summary="List schedules", responses=error_responses())
def list_schedules(store: StoreDependency) -> dict[str, Any]:
    """Return all schedules by name."""
    return build_single_page(
        [_schedule_to_json(store, schedule) for schedule in store.db.read(catalog_schedules.list_schedules)]
    )


@router.post(
    "/schedules/{name}/pause",
    response_model=ScheduleView,
    summary="Pause a schedule",
    responses=error_responses(400, 404, 409, 413),
)
def pause_schedule(store: StoreDependency, name: NamePath, key: IdempotencyKey = None) -> dict[str, Any]:
    """Pause a schedule: it queues nothing until it is resumed."""
    return _schedule_to_json(store, catalog_schedules.pause(store.db, name, store.author))


@router.post(
    "/schedules/{name}/resume",
    response_model=ScheduleView,
    summary="Resume a schedule",
    responses=error_responses(400, 404, 409, 413),
)
def resume_schedule(store: StoreDependency, name: NamePath, key: IdempotencyKey = None) -> dict[str, Any]:
    """Resume a paused schedule."""
    return _schedule_to_json(store, catalog_schedules.pause(store.db, name, store.author, resume=True))


def _schedule_to_json(store: StoreDependency, schedule: "ScheduleRecord") -> dict[str, Any]:
    schedule_status = store.db.read(lambda connection: build_schedule_status(connection, schedule, datetime.now(UTC)))
    return {
        "schedule": schedule.name,
        "declared": dict(schedule.declared),
        "cursor": dict(schedule.cursor),
        "seen_at": schedule.seen_at,
        "paused_at": schedule.paused_at,
        "gone_at": schedule.gone_at,
        **schedule_status.json(),
    }
