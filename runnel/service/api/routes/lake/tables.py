"""Routes for tables: list, show, read rows, and provenance."""

from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from runnel.client.json_views.table import read_table_facts, size_json
from runnel.lake.history.refs import check_retained
from runnel.lake.provenance.row_provenance import explain_rows
from runnel.lake.provenance.table_provenance import explain_table
from runnel.names import TableName
from runnel.service.api.bounded_query import query_duckdb
from runnel.service.api.dependencies import Caller, LakeDependency, StoreDependency
from runnel.service.api.etags import set_etag
from runnel.service.api.pagination import ListPage, build_page
from runnel.service.api.parameters import DEFAULT_LIMIT, Cursor, Limit, Offset, RefQuery, TablePath
from runnel.service.api.problem_json import error_responses

router = APIRouter(tags=["tables"])


class TableSizeView(BaseModel):
    """A table with its size; null if the engine that wrote it did not record it."""

    table: str
    rows: int | None
    bytes: int | None
    files: int | None


class ColumnView(BaseModel):
    """A column, with its type in Iceberg, and its Spark type, as it is written in a schema."""

    name: str
    type: str
    nullable: bool
    doc: str | None
    spark_type: str


class TableCommitView(BaseModel):
    """A commit that changed a table."""

    commit: str
    at: str
    author: str
    message: str


class TableView(TableSizeView):
    """One table: size, columns, newest versions, and where its metadata is."""

    at: str
    partition: list[str]
    key: list[str]
    columns: list[ColumnView]
    versions: list[TableCommitView]
    metadata: str
    properties: dict[str, str]


class TableRowsView(BaseModel):
    """Rows of a table at a commit; `next` is the offset of the next page."""

    columns: list[str]
    rows: list[list[Any]]
    engine: str
    seconds: float
    at: str
    next: str | None


class ProvenanceView(BaseModel):
    """The provenance of a table: inputs, code, parameters, run, checks. Unknown fields are null."""

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


class RowProvenanceView(BaseModel):
    """Where the rows of a table come from that a condition matches: the first ones, and how many there are."""

    table: str
    at: str
    row: str
    rows: list[dict[str, Any]]
    rows_total: int


@router.get(
    "/tables", response_model=ListPage[TableSizeView], summary="List the tables", responses=error_responses(304, 404)
)
def list_tables(
    request: Request,
    response: Response,
    store: StoreDependency,
    caller: Caller,
    at: RefQuery = "main",
    limit: Limit = DEFAULT_LIMIT,
    after: Cursor = None,
) -> dict[str, Any]:
    """Return the tables at a version by name, with their rows and sizes."""
    commit = check_retained(store.commit(at))
    set_etag(request, response, commit.id)
    entries = store.state(commit).items()
    visible_entries = [
        entry for entry in entries if (after is None or str(entry[0]) > after) and caller.can_see_table(str(entry[0]))
    ]
    return build_page(
        visible_entries[: limit + 1],
        limit,
        lambda entry: str(entry[0]),
        lambda entry: size_json(store, entry[0], entry[1].location),
    )


@router.get("/tables/{name}", response_model=TableView, summary="Show a table", responses=error_responses(304, 404))
def show_table(
    request: Request,
    response: Response,
    store: StoreDependency,
    name: TablePath,
    at: RefQuery = "main",
    versions: Limit = 5,
) -> dict[str, Any]:
    """Return the columns, the size and the newest versions of a table at a version of the lake."""
    table_name, commit = TableName.parse(name), check_retained(store.commit(at))
    set_etag(request, response, commit.id)
    return read_table_facts(store, table_name, commit, versions).json()


@router.get(
    "/tables/{name}/rows", response_model=TableRowsView, summary="Read rows", responses=error_responses(304, 404)
)
def read_rows(
    request: Request,
    response: Response,
    lake: LakeDependency,
    name: TablePath,
    at: RefQuery = "main",
    limit: Limit = DEFAULT_LIMIT,
    offset: Offset = 0,
) -> dict[str, Any]:
    """Return rows of a table, in the order of its files. Send the `at` of the first page with every further request."""
    table, commit = TableName.parse(name), check_retained(lake.store.commit(at))
    set_etag(request, response, commit.id)
    sql = f"select * from `{table.layer}`.`{table.name}` limit {limit + 1} offset {offset}"
    with query_duckdb(lake, sql, commit.id) as result:
        json_rows = list(islice(result.json_rows(), limit + 1))
        answer = {"columns": result.columns, "rows": json_rows[:limit], "engine": result.engine, "at": result.at}
        next_offset = str(offset + limit) if len(json_rows) > limit else None
        return {**answer, "seconds": round(result.seconds, 6), "next": next_offset}


@router.get(
    "/tables/{name}/why",
    response_model=ProvenanceView | RowProvenanceView,
    summary="Show the provenance of a table or of rows",
    responses=error_responses(400, 404),
)
def show_provenance(
    store: StoreDependency,
    name: TablePath,
    at: RefQuery = "main",
    row: Annotated[
        str | None, Query(max_length=10_000, description="A condition: return where the rows that match come from")
    ] = None,
) -> dict[str, Any]:
    """Return the provenance of a table: inputs, code, parameters, run, checks; with `row`, of the rows that match.

    The service does not load the project's code, so that it names the record of a file, but not its line.
    """
    table = TableName.parse(name)
    return explain_table(store, table, at).json() if row is None else explain_rows(store, table, row, at).json()
