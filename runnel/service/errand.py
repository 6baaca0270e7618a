"""What only a worker can answer, asked for by the queue: plans, which need the flow, and queries of Spark."""

from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, cast

from runnel.client.planning import plan_project
from runnel.client.wishes import asked

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.flow import Flow
    from runnel.lake.queue import Queued

KINDS = ("plan", "query")
MOST_ROWS = 10_000


def answer(lake: "Lake", flow: "Flow", queued: "Queued") -> dict[str, Any]:
    """Return what an entry that is no run asks for."""
    return _plan(lake, flow, queued) if queued.kind == "plan" else _query(lake, queued)


def _plan(lake: "Lake", flow: "Flow", queued: "Queued") -> dict[str, Any]:
    return dict(plan_project(lake, asked(queued).wish, flow).plan.json())


def _query(lake: "Lake", queued: "Queued") -> dict[str, Any]:
    """Answer a query: {"sql", "at", "engine", "limit"}."""
    wish = queued.wish
    engine = cast("Literal['auto', 'duckdb', 'spark']", wish.get("engine", "auto"))
    limit = min(int(wish.get("limit") or MOST_ROWS), MOST_ROWS)
    with lake.query(wish["sql"], at=wish.get("at", "main"), engine=engine) as result:
        rows = list(islice(result.json_rows(), limit + 1))
        return {
            "columns": result.columns,
            "rows": rows[:limit],
            "more": len(rows) > limit,
            "engine": result.engine,
            "seconds": round(result.seconds, 6),
            "at": result.at,
        }
