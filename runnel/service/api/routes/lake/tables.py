"""Tables: what there is, one of them, its rows, and why it holds what it holds."""

from itertools import islice
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from runnel.client.json_views.table import size_json, table_facts
from runnel.lake.history.refs import readable
from runnel.names import TableName
from runnel.service.api.bounded_query import ask_duckdb
from runnel.service.api.dependencies import Caller, LakeHere, StoreHere
from runnel.service.api.etags import tag
from runnel.service.api.pagination import Page, page
from runnel.service.api.parameters import DEFAULT, At, Cursor, Limit, Offset, TablePath
from runnel.service.api.problem_json import problems

router = APIRouter(tags=["tables"])


class TableSize(BaseModel):
    """A table with its size; null where the engine that wrote it did not say."""

    table: str
    rows: int | None
    bytes: int | None
    files: int | None


class Column(BaseModel):
    """A column, with its Iceberg type."""

    name: str
    type: str
    nullable: bool
    doc: str | None


class Made(BaseModel):
    """A commit that changed a table."""

    commit: str
    at: str
    author: str
    message: str


class TableShown(TableSize):
    """One table: size, columns, newest versions, and where its metadata is."""

    at: str
    partition: list[str]
    key: list[str]
    columns: list[Column]
    versions: list[Made]
    metadata: str
    properties: dict[str, str]


class Rows(BaseModel):
    """Rows of a table at a commit; `next` is the offset of the rows after them."""

    columns: list[str]
    rows: list[list[Any]]
    engine: str
    seconds: float
    at: str
    next: str | None


class WhyShown(BaseModel):
    """What made a table: inputs, code, parameters, run, checks. What is not known is null."""

    model_config = ConfigDict(extra="allow")

    table: str
    at: str
    kind: str
    rows: int | None
    commit: str
    branch: str
    message: str
    author: str
    made_at: str
    run: str | None
    inputs: list[dict[str, Any]]
    files: list[dict[str, Any]]


@router.get("/tables", response_model=Page[TableSize], summary="List the tables", responses=problems(304, 404))
def tables(
    request: Request,
    response: Response,
    store: StoreHere,
    caller: Caller,
    at: At = "main",
    limit: Limit = DEFAULT,
    after: Cursor = None,
) -> dict[str, Any]:
    """Return the tables at a version by name, with their rows and sizes."""
    commit = readable(store.commit(at))
    tag(request, response, commit.id)
    names = store.state(commit).items()
    found = [one for one in names if (after is None or str(one[0]) > after) and caller.may_see(str(one[0]))]
    return page(
        found[: limit + 1], limit, lambda one: str(one[0]), lambda one: size_json(store, one[0], one[1].location)
    )


@router.get("/tables/{name}", response_model=TableShown, summary="Show a table", responses=problems(304, 404))
def table(
    request: Request, response: Response, store: StoreHere, name: TablePath, at: At = "main", versions: Limit = 5
) -> dict[str, Any]:
    """Return the columns, the size and the newest versions of a table at a version of the lake."""
    wanted, commit = TableName.parse(name), readable(store.commit(at))
    tag(request, response, commit.id)
    return table_facts(store, wanted, commit, versions).json()


@router.get("/tables/{name}/rows", response_model=Rows, summary="Read rows", responses=problems(304, 404))
def rows(
    request: Request,
    response: Response,
    lake: LakeHere,
    name: TablePath,
    at: At = "main",
    limit: Limit = DEFAULT,
    offset: Offset = 0,
) -> dict[str, Any]:
    """Return rows of a table, in the order of its files. Give the `at` of the first page with every further one."""
    table, commit = TableName.parse(name), readable(lake.store.commit(at))
    tag(request, response, commit.id)
    sql = f"select * from `{table.layer}`.`{table.name}` limit {limit + 1} offset {offset}"
    with ask_duckdb(lake, sql, commit.id) as result:
        found = list(islice(result.json_rows(), limit + 1))
        told = {"columns": result.columns, "rows": found[:limit], "engine": result.engine, "at": result.at}
        more = str(offset + limit) if len(found) > limit else None
        return {**told, "seconds": round(result.seconds, 6), "next": more}


@router.get("/tables/{name}/why", response_model=WhyShown, summary="Show what made a table", responses=problems(404))
def why(lake: LakeHere, name: TablePath, at: At = "main") -> dict[str, Any]:
    """Return why a table holds what it holds: inputs, code, parameters, run, checks."""
    return lake.why(name, at=at).json()
