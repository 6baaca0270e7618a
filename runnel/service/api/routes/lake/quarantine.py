"""Routes for quarantined rows: list them with the reason of each, and discard them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from runnel.project.inspection.quarantine import quarantined_row_json
from runnel.service.api.dependencies import LakeDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_single_page
from runnel.service.api.parameters import DEFAULT_LIMIT, BranchQuery, Limit, Offset, Ref, TablePath
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["quarantine"])
FileQuery = Annotated[Ref | None, Query(description="Only rows that came from this file: its path, or the end of it.")]


class QuarantineTableView(BaseModel):
    """A table with quarantined rows, and the table that holds them."""

    table: str
    rows: int | None
    quarantine: str


class QuarantinedRowView(BaseModel):
    """A row as it arrived, and why it was quarantined: `reason` includes file and position, `cause` does not."""

    raw: str | None
    reason: str | None
    cause: str | None
    file: str | None
    position: str | None
    run: str | None
    at: str | None


class QuarantinedRowsView(BaseModel):
    """The quarantined rows of a table, oldest first; `next` is the offset of the next page."""

    table: str
    total: int
    rows: list[QuarantinedRowView]
    next: str | None


class DiscardView(BaseModel):
    """How many quarantined rows were discarded, and the commit that removed them."""

    table: str
    rows: int
    commit: str


@router.get(
    "/quarantine",
    response_model=ListPage[QuarantineTableView],
    summary="List tables with quarantined rows",
    responses=error_responses(404),
)
def list_quarantines(lake: LakeDependency, branch: BranchQuery = "main") -> dict[str, Any]:
    """Return the tables that have quarantined rows."""
    return build_single_page([quarantine.json() for quarantine in lake.quarantines(branch=branch)])


@router.get(
    "/quarantine/{table}",
    response_model=QuarantinedRowsView,
    summary="Show quarantined rows",
    responses=error_responses(404),
)
def show_quarantine(
    lake: LakeDependency,
    table: TablePath,
    branch: BranchQuery = "main",
    file: FileQuery = None,
    limit: Limit = DEFAULT_LIMIT,
    offset: Offset = 0,
) -> dict[str, Any]:
    """Return the quarantined rows of a table, with reason, run and time."""
    quarantined_rows = lake.quarantine(table, branch=branch, file=file)
    next_offset = str(offset + limit) if len(quarantined_rows) > offset + limit else None
    return {
        "table": table,
        "total": len(quarantined_rows),
        "rows": [quarantined_row_json(row) for row in quarantined_rows[offset : offset + limit]],
        "next": next_offset,
    }


@router.delete(
    "/quarantine/{table}",
    response_model=DiscardView,
    summary="Discard quarantined rows",
    responses=error_responses(400, 404, 409, 413),
)
def discard_quarantine(
    lake: LakeDependency,
    table: TablePath,
    branch: BranchQuery = "main",
    file: FileQuery = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Remove the quarantined rows of a table, or of one of its files, as one commit; older commits keep them."""
    result = lake.discard(table, branch=branch, file=file)
    return {"table": table, "rows": result.rows, "commit": result.commit.id}
