"""The DuckDB instance of this process that runs queries: sandboxed, and shared by all threads.

It reads only the warehouse and registered files, installs no extensions, and its settings are locked. The tables of the
lake are views; the name of a view is a hash of its SELECT, so it never changes its meaning.
"""

import atexit
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cachetools import LRUCache

from runnel import temp_dirs
from runnel.lake.scan.duckdb_types import quote_exact_path
from runnel.spark.jvm.command_line import memory_bytes

if TYPE_CHECKING:
    import duckdb

MEMORY_SHARE = 0.6
_MAX_VIEWS = 4096
_MAX_INSTANCES = 8


class DuckdbInstance:
    """A DuckDB that may read some folders and files. `active_queries` counts the queries that use it."""

    def __init__(self, folders: frozenset[str], files: frozenset[str]) -> None:
        self.spill_folder = temp_dirs.create("duckdb")
        self.active_queries = 0
        self._connection = _open_connection(folders, files, self.spill_folder)
        self._guard = threading.Lock()
        self._views: OrderedDict[str, None] = OrderedDict()  # no LRUCache: a view in use must not be dropped
        self._checked_queries: LRUCache[str, bool] = LRUCache(_MAX_VIEWS)

    def cursor(self) -> "duckdb.DuckDBPyConnection":
        """Return a connection for one query."""
        with self._guard:
            return self._connection.cursor()

    def ensure_view(self, name: str, select: str) -> None:
        """Create a view over a SELECT if it does not exist; a name always means the same SELECT."""
        with self._guard:
            if name not in self._views:
                self._connection.execute(f"CREATE OR REPLACE VIEW {name} AS {select}")
            self._views[name] = None
            self._views.move_to_end(name)
            # Views are dropped only if no other query is active: such a query may still use them.
            while self.active_queries <= 1 and len(self._views) > _MAX_VIEWS:
                self._connection.execute(f"DROP VIEW {self._views.popitem(last=False)[0]}")

    def is_single_select(self, sql: str) -> bool:
        """Return whether SQL is a single SELECT; protects against flaws of the translation."""
        import duckdb

        with self._guard:
            if not self._checked_queries.get(sql):
                statements = self._connection.extract_statements(sql)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    return False
                self._checked_queries[sql] = True
        return True

    def close(self) -> None:
        """Close it and remove what it spilled."""
        self._connection.close()
        shutil.rmtree(self.spill_folder, ignore_errors=True)


_instances: OrderedDict[tuple[frozenset[str], frozenset[str]], DuckdbInstance] = OrderedDict()
_abandoned: list[object] = []
_guard = threading.Lock()


@contextmanager
def open_instance(warehouse: str, files: frozenset[str] = frozenset()) -> Iterator[DuckdbInstance]:
    """Use this process's DuckDB for a warehouse and registered `files` outside of it, for the duration of the block."""
    key = (frozenset([warehouse.rstrip("/") + "/"]), files)
    with _guard:
        if key not in _instances:
            _instances[key] = DuckdbInstance(*key)
        _instances.move_to_end(key)
        instance = _instances[key]
        instance.active_queries += 1
        idle_keys = [idle_key for idle_key in _instances if not _instances[idle_key].active_queries]
        for idle_key in idle_keys[: max(0, len(_instances) - _MAX_INSTANCES)]:
            _instances.pop(idle_key).close()
    try:
        yield instance
    finally:
        with _guard:
            instance.active_queries -= 1


def close_all() -> None:
    """Close every DuckDB of this process and remove what it spilled."""
    with _guard:
        while _instances:
            _instances.popitem()[1].close()


def _reset_after_fork() -> None:
    """Let a forked child open its own DuckDB; closing the parent's would wait for threads that the child lacks."""
    global _guard, _instances
    _guard = threading.Lock()
    _abandoned.append(_instances)
    _instances = OrderedDict()


atexit.register(close_all)
os.register_at_fork(after_in_child=_reset_after_fork)


def _open_connection(folders: frozenset[str], files: frozenset[str], spill_folder: str) -> "duckdb.DuckDBPyConnection":
    import duckdb

    connection = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,  # a table name must never mean a variable of this program
            "memory_limit": f"{int(memory_bytes() * MEMORY_SHARE) // 2**20}MiB",
            "threads": os.cpu_count() or 1,
        },
    )
    for name, value in (
        ("TimeZone", "'UTC'"),
        ("temp_directory", _quote_text(spill_folder)),
        ("parquet_metadata_cache", "true"),  # the lake's files never change
        ("allowed_directories", _quote_list(folders)),
        ("allowed_paths", _quote_list(files)),
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
    ):
        connection.execute(f"SET {name} = {value}")
    return connection


def _quote_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quote_list(values: frozenset[str]) -> str:
    # A path with glob characters is read by its escaped spelling, but found by its own.
    spellings = sorted({_quote_text(value) for value in values} | {quote_exact_path(value) for value in values})
    return "[" + ", ".join(spellings) + "]"
