"""Routes for alarms: open and past ones, and their notifications."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from runnel.project.inspection.alarms import list_alarms as list_current_alarms
from runnel.service.api.dependencies import LakeDependency
from runnel.service.api.pagination import ListPage, build_page
from runnel.service.api.parameters import DEFAULT_LIMIT, Limit, Offset
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["alarms"])
AlarmStateQuery = Annotated[Literal["open", "over", "all"], Query(description="Open alarms, past alarms, or both.")]


class NotificationView(BaseModel):
    """A notification of an alarm, or why sending it failed."""

    alert: str
    told_at: str | None
    tries: int
    problem: str | None


class AlarmView(BaseModel):
    """An open or past alarm: what is wrong, since when, what it blocks, and what to do."""

    alarm: str
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
    told: list[NotificationView]


@router.get("/alarms", response_model=ListPage[AlarmView], summary="List alarms", responses=error_responses())
def list_alarms(
    lake: LakeDependency, state: AlarmStateQuery = "open", limit: Limit = DEFAULT_LIMIT, offset: Offset = 0
) -> dict[str, Any]:
    """Return open alarms, oldest first, and past ones, newest first. Past alarms are kept for 30 days."""
    matching_alarms = list_current_alarms(lake, state)
    numbered_alarms = list(enumerate(matching_alarms, 1))[offset : offset + limit + 1]
    return build_page(numbered_alarms, limit, lambda numbered: str(numbered[0]), lambda numbered: numbered[1].json())
