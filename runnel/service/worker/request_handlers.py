"""Answer queued requests that only a worker can handle: plans, which need the flow, and Spark queries."""

import secrets
import threading
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from runnel.project.planning.plan_project import plan_project
from runnel.project.planning.run_request_json import parse_request

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.lake.control.run_queue import QueueEntry
    from runnel.query.result import QueryResult

KINDS = ("plan", "query")
MAX_ROWS = 10_000


def answer_request(lake: "Lake", flow: "Flow", entry: "QueueEntry", cancelled: threading.Event) -> dict[str, Any]:
    """Answer a queue entry that is not a run. A query stops when `cancelled` is set."""
    return _answer_plan(lake, flow, entry) if entry.kind == "plan" else _answer_query(lake, entry, cancelled)


def _answer_plan(lake: "Lake", flow: "Flow", entry: "QueueEntry") -> dict[str, Any]:
    return dict(plan_project(lake, parse_request(entry).request, flow).plan.json())


def _answer_query(lake: "Lake", entry: "QueueEntry", cancelled: threading.Event) -> dict[str, Any]:
    """Answer a query: {"sql", "at", "engine", "limit", "arrow"}."""
    from runnel.query.engine import run_query
    from runnel.query.query_limits import CancelLimit

    request, cancel_limit = entry.request, CancelLimit(cancelled)
    engine, ref = str(request.get("engine", "auto")), str(request.get("at", "main"))
    with run_query(
        lake.store, request["sql"], at=ref, engine=engine, spark=lambda: lake.spark, query_limit=cancel_limit
    ) as result:
        if request.get("arrow"):
            return {"location": _write_answer(lake, result, request.get("limit"))}
        limit = min(int(request.get("limit") or MAX_ROWS), MAX_ROWS)
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
