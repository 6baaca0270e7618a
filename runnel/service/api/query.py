"""Queries, answered by DuckDB, or by a worker's Spark where DuckDB would not answer the same."""

from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field, StringConstraints

from runnel.errors import Mistake
from runnel.service.api.errand import answered
from runnel.service.api.here import LakeHere, StoreHere
from runnel.service.api.keys import Key
from runnel.service.api.problem import problems
from runnel.service.api.words import NO_NUL, Body, Ref

router = APIRouter(tags=["query"])
MOST_ROWS = 10_000


class Asking(Body):
    """A query in Spark SQL."""

    sql: Annotated[str, StringConstraints(min_length=1, max_length=50_000, pattern=NO_NUL)]
    at: Ref = "main"
    limit: int = Field(default=1000, ge=1, le=MOST_ROWS, description="How many rows to return at most")


class Answered(BaseModel):
    """The answer: times in ISO, decimals as strings, bytes in base64. `more` tells that there are further rows."""

    columns: list[str]
    rows: list[list[Any]]
    engine: str
    seconds: float
    at: str
    more: bool


@router.post("/query", response_model=Answered, summary="Ask the lake", responses=problems(400, 404, 409, 413, 503))
def query(lake: LakeHere, store: StoreHere, body: Asking, key: Key = None) -> dict[str, Any]:
    """Answer one SELECT at a version. What only Spark can answer is a worker's work."""
    try:
        found = lake.query(body.sql, at=body.at, engine="duckdb")
    except Mistake as error:
        if error.code != "SQL_NEEDS_SPARK":
            raise
        return answered(store, "query", {"sql": body.sql, "at": body.at, "limit": body.limit})
    with found as result:
        rows = list(islice(result.json_rows(), body.limit + 1))
        told = {"columns": result.columns, "rows": rows[: body.limit], "engine": result.engine, "at": result.at}
        return {**told, "seconds": round(result.seconds, 6), "more": len(rows) > body.limit}
