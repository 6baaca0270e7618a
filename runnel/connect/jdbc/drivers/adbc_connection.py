"""Connect to PostgreSQL with ADBC, which returns rows as Arrow.

The driver reads the type catalog of a database before the first connection (every column of every table, 36 ms for an
empty database), so the opened database is cached. Only built-in types pass through it, so the cache never goes stale.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcDatabase, dbapi

_MAX_CACHED_DATABASES = 64


class _SharedDatabase:
    """A database handle that stays open when one of its connections is closed."""

    def close(self) -> None:
        pass


def connect(url: str) -> "dbapi.Connection":
    """Return a new connection that commits each statement; `url` is a libpq connection string."""
    import adbc_driver_manager
    from adbc_driver_manager import dbapi

    shared_database: Any = _SharedDatabase()
    return dbapi.Connection(shared_database, adbc_driver_manager.AdbcConnection(_open_database(url)), autocommit=True)


@lru_cache(_MAX_CACHED_DATABASES)
def _open_database(url: str) -> "AdbcDatabase":
    import adbc_driver_postgresql  # type: ignore[import-untyped]

    database: AdbcDatabase = adbc_driver_postgresql.connect(url)
    return database
