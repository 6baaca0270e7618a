"""Route for the lineage of a table. A worker answers, because it needs the project's code."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from runnel.model.operation_request import LineageRequest
from runnel.names import TableName
from runnel.service.api.dependencies import StoreDependency
from runnel.service.api.parameters import TablePath
from runnel.service.api.problem_json import error_responses
from runnel.service.api.worker_request import ask_worker

router = APIRouter(tags=["tables"])
UpQuery = Annotated[bool, Query(description="The tables that it is computed from.")]
DownQuery = Annotated[bool, Query(description="The tables that are computed from it.")]


class LineageView(BaseModel):
    """The graph around a table: `edges` are pairs of an input and its reader, `makers` what fills each table."""

    table: str
    up: list[str]
    down: list[str]
    edges: list[list[str]]
    makers: dict[str, str]


@router.get(
    "/tables/{table}/lineage",
    response_model=LineageView,
    summary="Show the lineage of a table",
    responses=error_responses(404, 503),
)
def show_lineage(
    store: StoreDependency, table: TablePath, up: UpQuery = True, down: DownQuery = True
) -> dict[str, Any]:
    """Return the tables that a table is computed from, and those that are computed from it. Needs a worker."""
    return ask_worker(store, LineageRequest(str(TableName.parse(table)), up, down))
