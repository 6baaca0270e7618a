"""Checks: how those of each table went."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from runnel.client.json_views.check import all_checks, table_checks
from runnel.lake.history.refs import readable
from runnel.names import TableName
from runnel.service.api.dependencies import StoreHere
from runnel.service.api.pagination import Page, page
from runnel.service.api.parameters import DEFAULT, At, Cursor, Limit, TablePath
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["checks"])


class CheckShown(BaseModel):
    """How a check went: how many rows, or values, failed it, and what became of them."""

    check: str
    kind: str
    on_fail: str
    failed: int
    state: str = Field(description="passed or failed")


class Tried(BaseModel):
    """The newest run that made the table, or tried to."""

    run: str
    state: str
    at: str
    error: dict[str, Any] | None


class ChecksShown(BaseModel):
    """The checks of the version that a table has; `last` is the newest run, whose checks may have stopped it."""

    table: str
    at: str
    commit: str
    run: str | None
    made_at: str
    checks: list[CheckShown]
    last: Tried | None


@router.get("/checks", response_model=Page[ChecksShown], summary="Show all checks", responses=problems(404))
def checks(store: StoreHere, at: At = "main", limit: Limit = DEFAULT, after: Cursor = None) -> dict[str, Any]:
    """Return how the checks of all tables that have any went, by table."""
    found = all_checks(store, readable(store.commit(at)), after=after, limit=limit + 1)
    return page(found, limit, lambda one: str(one.table), lambda one: one.json())


@router.get(
    "/tables/{name}/checks", response_model=ChecksShown, summary="Show the checks of a table", responses=problems(404)
)
def checks_of(store: StoreHere, name: TablePath, at: At = "main") -> dict[str, Any]:
    """Return how the checks of a table went when the version was made that it has, and how its newest run went."""
    return table_checks(store, TableName.parse(name), readable(store.commit(at))).json()
