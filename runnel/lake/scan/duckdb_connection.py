"""Open DuckDB connections for the lake's own queries: no extensions are downloaded, only named files are read.

Starting a DuckDB takes longer than most queries, so a process has one instance, and each caller a connection of its
own to it: connections don't see each other's temporary tables, views and settings.
"""

import atexit
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.errors import CorruptData, RunnelError, find_disk_full

if TYPE_CHECKING:
    import duckdb


class _DuckdbInstance:
    """The DuckDB of this process."""

    def __init__(self) -> None:
        import duckdb

        self.spill_dir = temp_dirs.create("duckdb")
        settings: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "enable_external_file_cache": False,  # so that a user's rewritten file is read again at once
            "temp_directory": self.spill_dir,
            "threads": count_threads(),
        }
        if _limits is not None:
            settings["memory_limit"] = f"{_limits[1] >> 20}MiB"
        self._first_connection = duckdb.connect(":memory:", config=settings)

    def open_session(self) -> "duckdb.DuckDBPyConnection":
        session = self._first_connection.cursor()
        session.execute("SET TimeZone = 'UTC'")
        return session

    def close(self) -> None:
        self._first_connection.close()
        shutil.rmtree(self.spill_dir, ignore_errors=True)


_limits: tuple[int, int] | None = None  # threads and bytes, of a process that works for Spark
_instance: _DuckdbInstance | None = None
_parent_instances: list[object] = []
_lock = threading.Lock()


def connect_duckdb() -> "duckdb.DuckDBPyConnection":
    """Return a connection without tables, with the time zone UTC as in Spark."""
    import duckdb

    global _instance
    with _lock:
        if _instance is not None:
            with suppress(duckdb.Error):  # after some errors an instance refuses every query
                return _instance.open_session()
        _instance = _DuckdbInstance()
        return _instance.open_session()


def count_threads() -> int:
    """Return how many threads this process may use: one for each processor, or as many as it is limited to."""
    return _limits[0] if _limits is not None else os.cpu_count() or 1


def limit_resources(threads: int, memory_bytes: int) -> None:
    """Limit the DuckDB and Arrow of this process, which is a Python worker of Spark and shares its machine."""
    import pyarrow as pa

    global _limits
    if _limits != (threads, memory_bytes):
        _limits = (threads, memory_bytes)
        pa.set_cpu_count(threads)
        pa.set_io_thread_count(max(1, threads))
        _close_instance()


def _close_instance() -> None:
    global _instance
    with _lock:
        if _instance is not None:
            _instance.close()
        _instance = None


def _reset_after_fork() -> None:
    """Let a forked child start its own DuckDB; closing its parent's would wait for threads that the child lacks."""
    global _lock, _instance
    _lock = threading.Lock()
    _parent_instances.append(_instance)
    _instance = None


atexit.register(_close_instance)
os.register_at_fork(after_in_child=_reset_after_fork)


@contextmanager
def translate_duckdb_errors() -> Iterator[None]:
    """Turn DuckDB's errors about files and memory into RunnelErrors with a fix."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        what = "there is not enough memory or disk space to compare so many rows"
        raise RunnelError("DIFF_TOO_LARGE", what, fix="compare with a query of your own, over fewer rows") from error
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        if (disk_full := find_disk_full(error)) is not None:
            raise disk_full from error
        what = f"a file of the lake can't be read: {str(error).splitlines()[0]}"
        raise CorruptData("LAKE_FILE_UNREADABLE", what, fix="run `runnel fsck` to see which commits need it") from error
