"""DuckDB connections for the lake's own work: no extensions are fetched, nothing but named files is read."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def connect(*, memory_bytes: int | None = None, threads: int | None = None) -> "duckdb.DuckDBPyConnection":
    """Return a fresh in-memory database whose times are in UTC, as Spark's are."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if memory_bytes is not None:
        settings["memory_limit"] = f"{memory_bytes // 2**20}MiB"
    settings["threads"] = threads or os.cpu_count() or 1
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET TimeZone = 'UTC'")
    return connection
