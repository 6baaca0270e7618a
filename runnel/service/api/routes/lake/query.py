"""Queries, answered by DuckDB, or by a worker's Spark where DuckDB would not answer the same."""

from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, StringConstraints
from starlette.responses import Response

from runnel.errors import Mistake
from runnel.query.allow_list import parse
from runnel.query.arrow_stream import MEDIA_TYPE
from runnel.service.api import arrow_response
from runnel.service.api.bounded_query import ask_duckdb
from runnel.service.api.dependencies import Caller, LakeHere, StoreHere
from runnel.service.api.middleware.idempotency import Key
from runnel.service.api.middleware.token_scope import check_ref, check_tables
from runnel.service.api.parameters import NO_NUL, Body, Ref
from runnel.service.api.problem_json import problems
from runnel.service.api.worker_request import answered

router = APIRouter(tags=["query"])
MOST_ROWS = 10_000
_DEFAULT_ROWS = 1000
_ARROW = {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}


class Asking(Body):
    """A query in Spark SQL."""

    sql: Annotated[str, StringConstraints(min_length=1, max_length=50_000, pattern=NO_NUL)]
    at: Ref = "main"
    engine: Literal["auto", "duckdb", "spark"] = "auto"
    limit: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description=f"How many rows to return at most: {_DEFAULT_ROWS} by default, never more than {MOST_ROWS:,}; "
        "as Arrow all of them by default, and as many as are asked for",
    )


class Answered(BaseModel):
    """The answer: times in ISO, decimals as strings, bytes in base64. `more` tells that there are further rows."""

    columns: list[str]
    rows: list[list[Any]]
    engine: str
    seconds: float
    at: str
    more: bool


@router.post(
    "/query",
    response_model=Answered,
    summary="Ask the lake",
    responses={**problems(400, 404, 409, 413, 503), 200: {**_ARROW, "description": "The answer, or Arrow's stream"}},
)
def query(request: Request, lake: LakeHere, store: StoreHere, caller: Caller, body: Asking, key: Key = None) -> Any:
    """Answer one SELECT at a version. What only Spark can answer is a worker's work.

    With `Accept: application/vnd.apache.arrow.stream` the answer is a stream of Arrow batches, of any size and with
    exact types.
    """
    is_arrow = arrow_response.is_wanted(request)
    if caller.is_limited:
        check_tables(caller, parse(body.sql).tables)
        store.db.read(lambda connection: check_ref(connection, caller, body.at))
    try:
        if body.engine == "spark":
            return _by_spark(lake, store, body, is_arrow)
        found = ask_duckdb(lake, body.sql, body.at)
    except Mistake as error:
        if error.code != "SQL_NEEDS_SPARK" or body.engine == "duckdb":
            raise
        return _by_spark(lake, store, body, is_arrow)
    if is_arrow:
        return arrow_response.of_result(found, body.limit)
    limit = min(body.limit or _DEFAULT_ROWS, MOST_ROWS)
    with found as result:
        rows = list(islice(result.json_rows(), limit + 1))
        told = {"columns": result.columns, "rows": rows[:limit], "engine": result.engine, "at": result.at}
        return {**told, "seconds": round(result.seconds, 6), "more": len(rows) > limit}


def _by_spark(lake: LakeHere, store: StoreHere, body: Asking, is_arrow: bool) -> dict[str, Any] | Response:
    wish = {"sql": body.sql, "at": body.at, "engine": body.engine, "limit": body.limit, "arrow": is_arrow}
    if not is_arrow:
        wish["limit"] = min(body.limit or _DEFAULT_ROWS, MOST_ROWS)
    found = answered(store, "query", wish, seconds=lake.settings.query_timeout_seconds)
    return arrow_response.of_file(store, found["location"]) if is_arrow else found
