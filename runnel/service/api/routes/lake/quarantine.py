"""Rows that were set aside, and why."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from runnel.project.inspection.quarantine import aside_json
from runnel.service.api.dependencies import LakeHere
from runnel.service.api.pagination import Page, whole
from runnel.service.api.parameters import DEFAULT, Branch, Limit, Offset, Ref, TablePath
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["quarantine"])
OfFile = Annotated[Ref | None, Query(description="Only rows that came from this file.")]


class AsideTable(BaseModel):
    """A table of which rows are set aside, and the table that holds them."""

    table: str
    rows: int | None
    quarantine: str


class Aside(BaseModel):
    """A row as it came, and why it was set aside."""

    raw: str | None
    reason: str | None
    file: str | None
    run: str | None
    at: str | None


class AsideRows(BaseModel):
    """Rows of a table that are set aside, the oldest first; `next` is the offset of those after them."""

    table: str
    total: int
    rows: list[Aside]
    next: str | None


@router.get("/quarantine", response_model=Page[AsideTable], summary="List what is set aside", responses=problems(404))
def asides(lake: LakeHere, branch: Branch = "main") -> dict[str, Any]:
    """Return the tables of which rows are set aside."""
    return whole([one.json() for one in lake.quarantines(branch=branch)])


@router.get("/quarantine/{table}", response_model=AsideRows, summary="Show rows set aside", responses=problems(404))
def aside(
    lake: LakeHere,
    table: TablePath,
    branch: Branch = "main",
    file: OfFile = None,
    limit: Limit = DEFAULT,
    offset: Offset = 0,
) -> dict[str, Any]:
    """Return the rows of a table that were set aside, with the reason, the run and the time."""
    found = lake.quarantine(table, branch=branch, file=file)
    more = str(offset + limit) if len(found) > offset + limit else None
    return {
        "table": table,
        "total": len(found),
        "rows": [aside_json(row) for row in found[offset : offset + limit]],
        "next": more,
    }
