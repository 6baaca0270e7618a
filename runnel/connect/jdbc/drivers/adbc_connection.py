"""Connections to PostgreSQL by ADBC, which brings rows as Arrow.

What its driver learns of a database before the first connection is kept: it asks for every column of every table there,
36 ms for an empty database. Only types that every PostgreSQL has pass through it, so that this never gets old.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcDatabase, dbapi

_MOST_KEPT = 64


class _Kept:
    """Stands for a database that stays open when one of its connections is closed."""

    def close(self) -> None:
        pass


def connect(address: str) -> "dbapi.Connection":
    """Return a new connection that commits each statement; `address` is what libpq takes."""
    import adbc_driver_manager
    from adbc_driver_manager import dbapi

    kept: Any = _Kept()
    return dbapi.Connection(kept, adbc_driver_manager.AdbcConnection(_database(address)), autocommit=True)


@lru_cache(_MOST_KEPT)
def _database(address: str) -> "AdbcDatabase":
    import adbc_driver_postgresql  # type: ignore[import-untyped]

    found: AdbcDatabase = adbc_driver_postgresql.connect(address)
    return found
