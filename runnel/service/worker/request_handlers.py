"""Answer queued requests that only a worker can handle: Spark queries, and what needs the flow, such as plans."""

import secrets
import threading
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from runnel.lake.store import Store
from runnel.model.operation_request import OPERATION_KINDS, OperationRequest
from runnel.model.worker_request import PlanRequest, QueryRequest
from runnel.project.planning.plan_project import plan_project
from runnel.service.worker.operation_handlers import answer_operation

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.query.result import QueryResult

KINDS = (PlanRequest.kind, QueryRequest.kind, *OPERATION_KINDS)
MAX_ROWS = 10_000


def answer_request(
    lake: "Lake",
    flow: "Flow",
    request: PlanRequest | QueryRequest | OperationRequest,
    author: str,
    cancelled: threading.Event,
) -> dict[str, Any]:
    """Answer a request of `author` that is not a run. A query stops when `cancelled` is set."""
    if isinstance(request, PlanRequest):
        return dict(plan_project(lake, request.run, flow).plan.json())
    if isinstance(request, QueryRequest):
        return _answer_query(lake, request, cancelled)
    return answer_operation(_act_as(lake, author), flow, request)


def _act_as(lake: "Lake", author: str) -> "Lake":
    """Return the same lake, with another author of its commits."""
    from runnel.client.lake import Lake

    store = Store(lake.store.db, lake.store.warehouse, author, lake.store.storage)
    return Lake(lake.settings, store=store, spark_provider=lake.spark_provider)


def _answer_query(lake: "Lake", request: QueryRequest, cancelled: threading.Event) -> dict[str, Any]:
    from runnel.query.engine import run_query
    from runnel.query.query_limits import CancelLimit

    with run_query(
        lake.store,
        request.sql,
        at=request.at,
        engine=request.engine,
        spark=lambda: lake.spark,
        query_limit=CancelLimit(cancelled),
    ) as result:
        if request.arrow:
            return {"location": _write_answer(lake, result, request.limit)}
        limit = min(request.limit or MAX_ROWS, MAX_ROWS)
        rows = list(islice(result.json_rows(), limit + 1))
        return {
            "columns": result.columns,
            "rows": rows[:limit],
            "more": len(rows) > limit,
            "engine": result.engine,
            "seconds": round(result.seconds, 6),
            "at": result.at,
        }


def _write_answer(lake: "Lake", result: "QueryResult", limit: int | None) -> str:
    """Write an answer to the warehouse, and return its location.

    The service reads and deletes it; if the service fails to, `gc` removes it as an unreferenced file.
    """
    from runnel.query.arrow_stream import IncompleteAnswer, encode_result

    location = f"{lake.store.warehouse}/_answers/{secrets.token_hex(16)}/answer.arrow"
    try:
        with closing(lake.store.io.new_output(location).create()) as stream:
            for chunk in encode_result(result, limit):
                stream.write(chunk)
    except IncompleteAnswer as cut:
        lake.store.io.delete(location)
        assert cut.__cause__ is not None
        raise cut.__cause__ from None
    return location
