"""Ask DuckDB on behalf of a request, for as long as the project's settings allow."""

from typing import TYPE_CHECKING

from runnel.client.lake import Lake
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from runnel.query.result import Result


def ask_duckdb(lake: Lake, sql: str, at: str) -> "Result":
    """Return DuckDB's answer; raise SQL_NEEDS_SPARK where only Spark has it, and SQL_TIMEOUT where it takes too long.

    What takes too long is stopped, also while its rows are read.
    """
    from runnel.query.engine import query
    from runnel.query.query_limits import Limited

    seconds = lake.settings.query_timeout_seconds
    what = f"the query took longer than the {seconds} s that it may, and was stopped"
    fix = "ask for less, or raise `service.query_timeout` in runnel.toml"
    bound = Limited(seconds, RunnelError("SQL_TIMEOUT", what, fix=fix))
    return query(lake.store, sql, at=at, engine="duckdb", bound=bound)
