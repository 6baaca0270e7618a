"""Routes for alarms: open and past ones, their notifications; acknowledge, dismiss and mute them."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from runnel.project.execution import alarm_actions
from runnel.project.inspection.alarms import list_alarms as list_current_alarms
from runnel.service.api.dependencies import LakeDependency, StoreDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_page, build_single_page
from runnel.service.api.parameters import DEFAULT_LIMIT, Limit, Offset, Ref, RequestBody, Text
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["alarms"])
AlarmStateQuery = Annotated[Literal["open", "over", "all"], Query(description="Open alarms, past alarms, or both.")]
AlarmPath = Annotated[Ref, Path(description="The id of an alarm, a unique beginning of it, or its key.")]
SubjectPath = Annotated[Ref, Path(description="The id of an alarm, a kind of alarms such as `late`, or a table.")]


class NotificationView(BaseModel):
    """A notification of an alarm, or why sending it failed."""

    alert: str
    told_at: str | None
    tries: int
    problem: str | None


class AlarmView(BaseModel):
    """An open or past alarm: what is wrong, since when, what it blocks, and what to do."""

    alarm: str
    id: str
    number: int
    state: str
    kind: str
    level: str
    what: str
    since: str
    over_at: str | None
    tables: list[str]
    blocks: list[str]
    fix: str
    run: str | None
    acknowledged_at: str | None
    acknowledged_by: str | None
    dismissed_at: str | None
    dismissed_by: str | None
    note: str | None
    muted_until: str | None
    muted_by: str | None
    told: list[NotificationView]


class MuteView(BaseModel):
    """What causes no notifications until a time: an alarm, by its key, a kind of alarms, or a table."""

    subject: str
    kind: str = Field(description="alarm, kind or table")
    muted_until: str
    muted_by: str


class AlarmNote(RequestBody):
    """A note of the person who acknowledges or dismisses an alarm."""

    note: Text | None = None


class NewMute(RequestBody):
    """How long to mute."""

    duration: Text = Field(alias="for", examples=["2 hours"])


@router.get("/alarms", response_model=ListPage[AlarmView], summary="List alarms", responses=error_responses())
def list_alarms(
    lake: LakeDependency, state: AlarmStateQuery = "open", limit: Limit = DEFAULT_LIMIT, offset: Offset = 0
) -> dict[str, Any]:
    """Return open alarms, oldest first, and past ones, newest first. Past alarms are kept for 30 days."""
    matching_alarms = list_current_alarms(lake, state)
    numbered_alarms = list(enumerate(matching_alarms, 1))[offset : offset + limit + 1]
    return build_page(numbered_alarms, limit, lambda numbered: str(numbered[0]), lambda numbered: numbered[1].json())


@router.get("/alarms/mutes", response_model=ListPage[MuteView], summary="List mutes", responses=error_responses())
def list_mutes(lake: LakeDependency) -> dict[str, Any]:
    """Return what is muted now, what ends first before the others."""
    return build_single_page([mute.json() for mute in lake.mutes()])


@router.post(
    "/alarms/{alarm:path}/ack",
    response_model=AlarmView,
    summary="Acknowledge an alarm",
    responses=error_responses(400, 404, 409, 413),
)
def acknowledge_alarm(
    store: StoreDependency, alarm: AlarmPath, body: AlarmNote | None = None, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Record that the caller takes care of an open alarm: no further notification until it is over."""
    return alarm_actions.acknowledge_alarm(store, alarm, body.note if body else None).json()


@router.post(
    "/alarms/{alarm:path}/dismiss",
    response_model=AlarmView,
    summary="Dismiss an alarm",
    responses=error_responses(400, 404, 409, 413),
)
def dismiss_alarm(
    store: StoreDependency, alarm: AlarmPath, body: AlarmNote | None = None, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Close an open alarm: it comes back only with a new failure."""
    return alarm_actions.dismiss_alarm(store, alarm, body.note if body else None).json()


@router.post(
    "/alarms/{subject:path}/mute",
    response_model=MuteView,
    summary="Mute alarms",
    responses=error_responses(400, 404, 409, 413),
)
def mute_alarms(
    store: StoreDependency, subject: SubjectPath, body: NewMute, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Send no notification about an alarm, a kind of alarms or a table for a time."""
    return alarm_actions.mute_alarms(store, subject, body.duration).json()


@router.post(
    "/alarms/{subject:path}/unmute",
    response_model=MuteView,
    summary="Unmute alarms",
    responses=error_responses(400, 404, 409, 413),
)
def unmute_alarms(store: StoreDependency, subject: SubjectPath, key: IdempotencyKey = None) -> dict[str, Any]:
    """End a mute, and return it."""
    return alarm_actions.unmute_alarms(store, subject).json()
