"""What only a worker can answer, asked for by the queue: plans, which need the flow, and queries of Spark."""

import secrets
import threading
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from runnel.project.planning.plan_project import plan_project
from runnel.project.planning.run_request_json import asked

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.lake.control.run_queue import Queued
    from runnel.query.result import Result

KINDS = ("plan", "query")
MOST_ROWS = 10_000


def answer(lake: "Lake", flow: "Flow", queued: "Queued", cancelled: threading.Event) -> dict[str, Any]:
    """Return what an entry that is no run asks for; a query ends where it is cancelled."""
    return _plan(lake, flow, queued) if queued.kind == "plan" else _query(lake, queued, cancelled)


def _plan(lake: "Lake", flow: "Flow", queued: "Queued") -> dict[str, Any]:
    return dict(plan_project(lake, asked(queued).wish, flow).plan.json())


def _query(lake: "Lake", queued: "Queued", cancelled: threading.Event) -> dict[str, Any]:
    """Answer a query: {"sql", "at", "engine", "limit", "arrow"}."""
    from runnel.query.engine import query
    from runnel.query.query_limits import Stoppable

    wish, bound = queued.wish, Stoppable(cancelled)
    engine, at = str(wish.get("engine", "auto")), str(wish.get("at", "main"))
    with query(lake.store, wish["sql"], at=at, engine=engine, spark=lambda: lake.spark, bound=bound) as result:
        if wish.get("arrow"):
            return {"location": _kept(lake, result, wish.get("limit"))}
        limit = min(int(wish.get("limit") or MOST_ROWS), MOST_ROWS)
        rows = list(islice(result.json_rows(), limit + 1))
        return {
            "columns": result.columns,
            "rows": rows[:limit],
            "more": len(rows) > limit,
            "engine": result.engine,
            "seconds": round(result.seconds, 6),
            "at": result.at,
        }


def _kept(lake: "Lake", result: "Result", limit: int | None) -> str:
    """Write an answer where the service finds it, which removes it; what it leaves is swept as an unknown file."""
    from runnel.query.arrow_stream import Cut, sent

    location = f"{lake.store.warehouse}/_answers/{secrets.token_hex(16)}/answer.arrow"
    try:
        with closing(lake.store.io.new_output(location).create()) as stream:
            for part in sent(result, limit):
                stream.write(part)
    except Cut as cut:
        lake.store.io.delete(location)
        assert cut.__cause__ is not None
        raise cut.__cause__ from None
    return location
