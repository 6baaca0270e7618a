"""Route for queries: DuckDB answers, or a worker's Spark if DuckDB would not give the same answer."""

from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, StringConstraints
from starlette.responses import Response

from runnel.errors import Mistake
from runnel.model.worker_request import QueryRequest
from runnel.query.allow_list import parse_allowed_query
from runnel.query.arrow_stream import MEDIA_TYPE
from runnel.service.api import arrow_response
from runnel.service.api.bounded_query import query_duckdb
from runnel.service.api.dependencies import Caller, LakeDependency, StoreDependency
from runnel.service.api.middleware.idempotency import IdempotencyKey
from runnel.service.api.middleware.token_scope import check_ref, check_tables
from runnel.service.api.parameters import NO_NUL, Ref, RequestBody
from runnel.service.api.problem_json import error_responses
from runnel.service.api.worker_request import ask_worker

router = APIRouter(tags=["query"])
MAX_ROWS = 10_000
_DEFAULT_ROWS = 1000
_ARROW = {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}


class QueryRequestBody(RequestBody):
    """A query in Spark SQL."""

    sql: Annotated[str, StringConstraints(min_length=1, max_length=50_000, pattern=NO_NUL)]
    at: Ref = "main"
    engine: Literal["auto", "duckdb", "spark"] = "auto"
    limit: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description=f"Maximum number of rows: {_DEFAULT_ROWS} by default, never more than {MAX_ROWS:,}; "
        "for Arrow all rows by default, without an upper limit",
    )


class QueryAnswerView(BaseModel):
    """The answer: times in ISO, decimals as strings, bytes in base64. `more` is true if there are further rows."""

    columns: list[str]
    rows: list[list[Any]]
    engine: str
    seconds: float
    at: str
    more: bool


@router.post(
    "/query",
    response_model=QueryAnswerView,
    summary="Run a query",
    responses={
        **error_responses(400, 404, 409, 413, 503),
        200: {**_ARROW, "description": "The answer, or a stream of Arrow batches"},
    },
)
def run_query(
    request: Request,
    lake: LakeDependency,
    store: StoreDependency,
    caller: Caller,
    body: QueryRequestBody,
    key: IdempotencyKey = None,
) -> Any:
    """Answer one SELECT at a version. If only Spark can answer, a worker does.

    With `Accept: application/vnd.apache.arrow.stream` the answer is a stream of Arrow batches, of any size and with
    exact types.
    """
    is_arrow = arrow_response.accepts_arrow(request)
    if caller.is_limited:
        check_tables(caller, parse_allowed_query(body.sql).tables)
        store.db.read(lambda connection: check_ref(connection, caller, body.at))
    try:
        if body.engine == "spark":
            return _query_spark(lake, store, body, is_arrow)
        open_result = query_duckdb(lake, body.sql, body.at)
    except Mistake as error:
        if error.code != "SQL_NEEDS_SPARK" or body.engine == "duckdb":
            raise
        return _query_spark(lake, store, body, is_arrow)
    if is_arrow:
        return arrow_response.from_result(open_result, body.limit)
    limit = min(body.limit or _DEFAULT_ROWS, MAX_ROWS)
    with open_result as result:
        rows = list(islice(result.json_rows(), limit + 1))
        answer = {"columns": result.columns, "rows": rows[:limit], "engine": result.engine, "at": result.at}
        return {**answer, "seconds": round(result.seconds, 6), "more": len(rows) > limit}


def _query_spark(
    lake: LakeDependency, store: StoreDependency, body: QueryRequestBody, is_arrow: bool
) -> dict[str, Any] | Response:
    limit = body.limit if is_arrow else min(body.limit or _DEFAULT_ROWS, MAX_ROWS)
    worker_request = QueryRequest(body.sql, body.at, body.engine, limit, is_arrow)
    answer = ask_worker(store, worker_request, seconds=lake.settings.query_timeout_seconds)
    return arrow_response.from_file(store, answer["location"]) if is_arrow else answer
