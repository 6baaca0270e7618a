"""DuckDB connections for the lake's own work: no extensions are fetched, nothing but named files is read.

To start a DuckDB takes longer than most of what it is asked, so a process has one, and every work a connection of its
own to it: the temporary tables, views and settings of one are not seen by another.
"""

import atexit
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.errors import Broken, RunnelError

if TYPE_CHECKING:
    import duckdb


class _Running:
    """The DuckDB of this process."""

    def __init__(self) -> None:
        import duckdb

        self.spill = temp_dirs.path("duckdb")
        settings: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "enable_external_file_cache": False,  # a user's file that was written anew is another one at once
            "temp_directory": self.spill,
            "threads": os.cpu_count() or 1,
        }
        self._first = duckdb.connect(":memory:", config=settings)

    def session(self) -> "duckdb.DuckDBPyConnection":
        session = self._first.cursor()
        session.execute("SET TimeZone = 'UTC'")
        return session

    def close(self) -> None:
        self._first.close()
        shutil.rmtree(self.spill, ignore_errors=True)


_running: _Running | None = None
_abandoned: list[object] = []
_guard = threading.Lock()


def connect() -> "duckdb.DuckDBPyConnection":
    """Return a connection that has no tables, and whose times are in UTC, as Spark's are."""
    import duckdb

    global _running
    with _guard:
        if _running is not None:
            with suppress(duckdb.Error):  # after some errors a DuckDB answers nobody any more
                return _running.session()
        _running = _Running()
        return _running.session()


def _close() -> None:
    global _running
    with _guard:
        if _running is not None:
            _running.close()
        _running = None


def _forget() -> None:
    """Give a forked child a DuckDB of its own; closing its parent's would wait for threads that it does not have."""
    global _guard, _running
    _guard = threading.Lock()
    _abandoned.append(_running)
    _running = None


atexit.register(_close)
os.register_at_fork(after_in_child=_forget)


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
