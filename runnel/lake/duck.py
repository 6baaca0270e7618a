"""DuckDB connections for the lake's own work: no extensions are fetched, nothing but named files is read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.errors import Broken, RunnelError

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


@contextmanager
def told() -> Iterator[None]:
    """Turn what DuckDB says about files and memory into errors that a user can act on."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        what = "there is not enough memory or disk space to compare so many rows"
        raise RunnelError("DIFF_TOO_LARGE", what, fix="compare with a query of your own, over fewer rows") from error
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        what = f"a file of the lake can't be read: {str(error).splitlines()[0]}"
        raise Broken("LAKE_FILE_UNREADABLE", what, fix="run `runnel fsck` to see which commits need it") from error
