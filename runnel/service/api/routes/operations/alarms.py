"""Alarms: what is wrong, what was, and whom it was told."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel

from runnel.project.inspection.alarms import alarms as found_alarms
from runnel.service.api.dependencies import LakeHere
from runnel.service.api.pagination import Page, page
from runnel.service.api.parameters import DEFAULT, Limit, Offset
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["alarms"])
Which = Annotated[Literal["open", "over", "all"], Query(description="What is wrong, what is over, or both.")]


class ToldTo(BaseModel):
    """Whom an alarm was told, or why that failed."""

    alert: str
    told_at: str | None
    tries: int
    problem: str | None


class AlarmShown(BaseModel):
    """Something that is wrong, or was: what, since when, what it blocks, and what to do."""

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
    told: list[ToldTo]


@router.get("/alarms", response_model=Page[AlarmShown], summary="Show what is wrong", responses=problems())
def alarms(lake: LakeHere, state: Which = "open", limit: Limit = DEFAULT, offset: Offset = 0) -> dict[str, Any]:
    """Return what is wrong, the oldest first; of what is over the newest first. The past goes back 30 days."""
    found = found_alarms(lake, state)
    shown = list(enumerate(found, 1))[offset : offset + limit + 1]
    return page(shown, limit, lambda one: str(one[0]), lambda one: one[1].json())
