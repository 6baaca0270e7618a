"""The DuckDB inside this process that answers queries: locked in, and shared by all threads.

It reads the warehouse and registered files, nothing else; it fetches no extensions, and its settings can't be changed.
The tables of the lake are views, named after what they read, which never changes.
"""

import atexit
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.lake.scan.duckdb_types import exact_path
from runnel.spark.jvm.command_line import memory_bytes

if TYPE_CHECKING:
    import duckdb

MEMORY_SHARE = 0.6
_MOST_VIEWS = 4096
_MOST_INSTANCES = 8


class Instance:
    """One DuckDB that may read some folders and files. `users` counts the queries that it is lent to."""

    def __init__(self, folders: frozenset[str], files: frozenset[str]) -> None:
        self.spill = temp_dirs.path("duckdb")
        self.users = 0
        self._connection = _connect(folders, files, self.spill)
        self._guard = threading.Lock()
        self._views: OrderedDict[str, None] = OrderedDict()
        self._checked: OrderedDict[str, None] = OrderedDict()

    def cursor(self) -> "duckdb.DuckDBPyConnection":
        """Return a connection for one query."""
        with self._guard:
            return self._connection.cursor()

    def view(self, name: str, select: str) -> None:
        """Make sure that there is a view over a SELECT; a name always means the same SELECT."""
        with self._guard:
            if name not in self._views:
                self._connection.execute(f"CREATE OR REPLACE VIEW {name} AS {select}")
            self._views[name] = None
            self._views.move_to_end(name)
            # A view goes only while nobody else asks: a query that was given its name finds it.
            while self.users <= 1 and len(self._views) > _MOST_VIEWS:
                self._connection.execute(f"DROP VIEW {self._views.popitem(last=False)[0]}")

    def check(self, sql: str) -> bool:
        """Tell whether SQL is one SELECT, should a flaw of the translation ever make something else."""
        import duckdb

        with self._guard:
            if sql not in self._checked:
                found = self._connection.extract_statements(sql)
                if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
                    return False
                self._checked[sql] = None
                while len(self._checked) > _MOST_VIEWS:
                    self._checked.popitem(last=False)
        return True

    def close(self) -> None:
        """Close it and remove what it spilled."""
        self._connection.close()
        shutil.rmtree(self.spill, ignore_errors=True)


_instances: OrderedDict[tuple[frozenset[str], frozenset[str]], Instance] = OrderedDict()
_abandoned: list[object] = []
_guard = threading.Lock()


@contextmanager
def opened(warehouse: str, files: frozenset[str] = frozenset()) -> Iterator[Instance]:
    """Lend this process's DuckDB for a warehouse and registered `files` outside of it."""
    key = (frozenset([warehouse.rstrip("/") + "/"]), files)
    with _guard:
        if key not in _instances:
            _instances[key] = Instance(*key)
        _instances.move_to_end(key)
        found = _instances[key]
        found.users += 1
        idle = [old for old in _instances if not _instances[old].users]
        for old in idle[: max(0, len(_instances) - _MOST_INSTANCES)]:
            _instances.pop(old).close()
    try:
        yield found
    finally:
        with _guard:
            found.users -= 1


def close_all() -> None:
    """Close every DuckDB of this process and remove what it spilled."""
    with _guard:
        while _instances:
            _instances.popitem()[1].close()


def _forget() -> None:
    """Give a forked child a DuckDB of its own; closing its parent's would wait for threads that it does not have."""
    global _guard, _instances
    _guard = threading.Lock()
    _abandoned.append(_instances)
    _instances = OrderedDict()


atexit.register(close_all)
os.register_at_fork(after_in_child=_forget)


def _connect(folders: frozenset[str], files: frozenset[str], spill: str) -> "duckdb.DuckDBPyConnection":
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
        ("temp_directory", _text(spill)),
        ("parquet_metadata_cache", "true"),  # the lake's files never change
        ("allowed_directories", _texts(folders)),
        ("allowed_paths", _texts(files)),
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
    ):
        connection.execute(f"SET {name} = {value}")
    return connection


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _texts(values: frozenset[str]) -> str:
    # A path with letters of patterns is asked for in another spelling, and found under its own.
    both = sorted({_text(value) for value in values} | {exact_path(value) for value in values})
    return "[" + ", ".join(both) + "]"
