"""Run a DuckDB query for a request, within the time limit of the project's settings."""

from typing import TYPE_CHECKING

from runnel.client.lake import Lake
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from runnel.query.result import QueryResult


def query_duckdb(lake: Lake, sql: str, ref: str) -> "QueryResult":
    """Return DuckDB's answer; raise SQL_NEEDS_SPARK if only Spark can answer, and SQL_TIMEOUT if it takes too long.

    The time limit includes reading the rows.
    """
    from runnel.query.engine import run_query
    from runnel.query.query_limits import TimeLimit

    seconds = lake.settings.query_timeout_seconds
    what = f"the query took longer than {seconds} s and was stopped"
    fix = "query less data, or raise `service.query_timeout` in runnel.toml"
    time_limit = TimeLimit(seconds, RunnelError("SQL_TIMEOUT", what, fix=fix))
    return run_query(lake.store, sql, at=ref, engine="duckdb", query_limit=time_limit)
