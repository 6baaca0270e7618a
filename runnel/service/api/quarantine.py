"""Rows that were set aside, and why."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from runnel.client.releasing import named
from runnel.declare.flow import QUARANTINE, quarantine_of
from runnel.errors import Mistake, nearest
from runnel.service.api.here import LakeHere
from runnel.service.api.page import Page, whole
from runnel.service.api.problem import problems
from runnel.service.api.words import DEFAULT, Branch, Limit, Offset, Ref, TablePath

router = APIRouter(tags=["quarantine"])
OfFile = Annotated[Ref | None, Query(description="Only rows that came from this file.")]
_FIELDS = ("raw", "reason", "file", "run")


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
    from runnel.connect.quarantine import OF
    from runnel.lake.movement import size
    from runnel.lake.tables import load

    store, found = lake.store, []
    for name, version in store.state(branch).items():
        rows = size(store, version.location).rows if name.layer == QUARANTINE else 0
        if rows:
            of = load(store, version.location).properties.get(OF, "")
            found.append({"table": of, "rows": rows, "quarantine": str(name)})
    return whole(found)


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
    from runnel.connect.quarantine import held

    state, of = lake.store.state(branch), named(lake, table, branch)
    if of not in state and quarantine_of(of) not in state:
        close = nearest(str(of), [str(name) for name in state])
        what = f"there is no table `{of}` on branch `{branch}`" + (f"; close: `{close}`" if close else "")
        raise Mistake("QUARANTINE_UNKNOWN", what, fix="`runnel quarantine` lists what is set aside")
    found = held(lake.store, of, branch, file)
    rows = [
        {**{name: getattr(row, name) for name in _FIELDS}, "at": row.at.isoformat() if row.at else None}
        for row in found[offset : offset + limit]
    ]
    more = str(offset + limit) if len(found) > offset + limit else None
    return {"table": table, "total": len(found), "rows": rows, "next": more}
