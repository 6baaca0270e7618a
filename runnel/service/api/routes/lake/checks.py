"""Routes for the results of checks."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from runnel.client.json_views.check import read_all_checks, read_table_checks
from runnel.lake.history.refs import check_retained
from runnel.names import TableName
from runnel.service.api.dependencies import StoreDependency
from runnel.service.api.pagination import ListPage, build_page
from runnel.service.api.parameters import DEFAULT_LIMIT, Cursor, Limit, RefQuery, TablePath
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["checks"])


class CheckView(BaseModel):
    """The result of a check: how many rows or values failed it, and what `on_fail` did with them."""

    check: str
    kind: str
    on_fail: str
    failed: int
    state: str = Field(description="passed or failed")


class LastRunView(BaseModel):
    """The newest run that computed the table, or tried to."""

    run: str
    state: str
    at: str
    error: dict[str, Any] | None


class TableChecksView(BaseModel):
    """The checks of a table's current version; `last` is the newest run, which its checks may have stopped."""

    table: str
    at: str
    commit: str
    run: str | None
    made_at: str
    checks: list[CheckView]
    last: LastRunView | None


@router.get(
    "/checks", response_model=ListPage[TableChecksView], summary="Show all checks", responses=error_responses(404)
)
def list_checks(
    store: StoreDependency, at: RefQuery = "main", limit: Limit = DEFAULT_LIMIT, after: Cursor = None
) -> dict[str, Any]:
    """Return the check results of all tables with checks, by table."""
    results = read_all_checks(store, check_retained(store.commit(at)), after=after, limit=limit + 1)
    return build_page(results, limit, lambda result: str(result.table), lambda result: result.json())


@router.get(
    "/tables/{name}/checks",
    response_model=TableChecksView,
    summary="Show the checks of a table",
    responses=error_responses(404),
)
def show_table_checks(store: StoreDependency, name: TablePath, at: RefQuery = "main") -> dict[str, Any]:
    """Return the check results of a table's current version, and the state of its newest run."""
    return read_table_checks(store, TableName.parse(name), check_retained(store.commit(at))).json()
