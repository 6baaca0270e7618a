"""Routes for quarantined rows: list them with the reason of each, release them, and discard them."""

import secrets
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, StringConstraints
from starlette.requests import ClientDisconnect

from runnel.errors import Mistake, RunnelError
from runnel.lake.store import Store
from runnel.model.operation_request import ReleaseRequest
from runnel.names import TableName
from runnel.project.inspection.quarantine import quarantined_row_json
from runnel.service.api.dependencies import LakeDependency, StoreDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.pagination import ListPage, build_single_page
from runnel.service.api.parameters import DEFAULT_LIMIT, BranchQuery, Limit, Offset, Ref, TablePath
from runnel.service.api.problem_json import error_responses
from runnel.service.api.worker_request import ask_worker

router = APIRouter(tags=["quarantine"])
FileQuery = Annotated[Ref | None, Query(description="Only rows that came from this file: its path, or the end of it.")]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=60, pattern=r"^[^./\\\x00][^/\\\x00]*$")]
NameQuery = Annotated[FileName | None, Query(description="The name of the corrected file, for messages.")]
_BINARY_MEDIA_TYPE = "application/octet-stream"
_DEFAULT_NAMES = {
    "text/csv": "corrected.csv",
    "application/x-ndjson": "corrected.jsonl",
    _BINARY_MEDIA_TYPE: "corrected",
}
_CORRECTED_FILE = {
    "required": False,
    "description": "The corrected file; without one, the rows are released as they are.",
    "content": {_BINARY_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
}


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


class StillBadRowView(QuarantinedRowView):
    """A row that could not be released, with its current reason; `line` is that in the corrected file."""

    line: int | None


class ReleaseView(BaseModel):
    """What a release did: rows to release, those that the table took, and those that are still bad."""

    table: str
    rows: int
    taken: int
    bad: int
    missing: int = Field(description="Rows that stay in quarantine because the corrected file lacks them")
    unknown: int = Field(description="Rows of the corrected file that are no longer in quarantine")
    still_bad: list[StillBadRowView]
    commit: str | None = Field(description="null if nothing changed")


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


@router.post(
    "/quarantine/{table}/release",
    response_model=ReleaseView,
    summary="Release quarantined rows",
    responses=error_responses(400, 404, 409, 413, 415, 503),
    openapi_extra={"requestBody": _CORRECTED_FILE},
)
async def release_quarantine(
    request: Request,
    store: StoreDependency,
    table: TablePath,
    branch: BranchQuery = "main",
    file: FileQuery = None,
    name: NameQuery = None,
    limit: Limit = DEFAULT_LIMIT,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Ingest the quarantined rows of a source again, as they are, or as the uploaded file corrects them.

    `still_bad` has at most `limit` of the rows that stay in quarantine. Needs a worker.
    """
    try:
        body = await request.body()
    except ClientDisconnect as error:
        raise Mistake("REQUEST_CUT", "the request is incomplete", fix="send it again") from error
    default_name = _choose_name(request, body)
    release_request = ReleaseRequest(str(TableName.parse(table)), branch, file, name=name or default_name, limit=limit)
    return await to_thread.run_sync(partial(_release, store, release_request, body))


def _choose_name(request: Request, body: bytes) -> str:
    media_type = request.headers.get("content-type", _BINARY_MEDIA_TYPE).partition(";")[0].strip().lower()
    if body and media_type not in _DEFAULT_NAMES:
        what = f"a corrected file is sent as {', '.join(_DEFAULT_NAMES)}, not as {media_type}"
        raise RunnelError("RELEASE_MEDIA_TYPE", what, fix="send the header Content-Type: text/csv")
    return _DEFAULT_NAMES.get(media_type, "corrected")


def _release(store: Store, release_request: ReleaseRequest, body: bytes) -> dict[str, Any]:
    """Pass an uploaded file to a worker by way of the warehouse, because a worker may run on another machine.

    If the service does not get to deleting it, `gc` removes it as an unreferenced file.
    """
    if not body:
        return ask_worker(store, release_request)
    location = f"{store.warehouse}/_uploads/{secrets.token_hex(16)}/corrected"
    with closing(store.io.new_output(location).create()) as stream:
        stream.write(body)
    try:
        return ask_worker(store, replace(release_request, location=location))
    finally:
        with suppress(OSError):
            store.io.delete(location)
