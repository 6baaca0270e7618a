"""The catalog database: connections and transactions on SQLite and PostgreSQL.

No transaction is held over file or network I/O. The clock of leases is the database's on PostgreSQL, this machine's
on SQLite.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Dialect, Engine, make_url
from sqlalchemy.exc import ArgumentError as BadUrl
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.util import LRUCache

from runnel.errors import Mistake, NoRoom, RunnelError, Unreachable
from runnel.thread_interrupt import uninterrupted

T = TypeVar("T")
BUSY_SECONDS = 30.0
_MOST_STATEMENTS = 1000
_ATTEMPTS = 12  # about 20 seconds: a database that restarts is waited for
# A serialization failure or deadlock, and the server going away or starting up; all are worth another try.
_RETRY_STATES = ("40001", "40P01", "57P01", "57P02", "57P03", "08006", "08001", "08003")


class Database:
    """One catalog database. Safe to share between threads; a forked process opens its own."""

    def __init__(self, url: str) -> None:
        self.url = _parsed(url)
        self._answered = False
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = _sqlite(self.url) if self.is_sqlite else _postgresql(self.url)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that sees one state of the database and writes nothing."""
        with self._reached() as connection, connection.begin():
            yield connection

    def read(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` reads in one transaction, trying again when the database was locked or restarted."""
        return self._trying(work, writing=False)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one writing transaction and return its result.

        `work` may run several times, also after an attempt that took effect without our knowing: where that matters
        it takes the lake's lock, which waits for such an attempt to end, and then looks for what it would have made.
        """
        return self._trying(work, writing=True)

    def now(self, connection: Connection | None = None) -> str:
        """Return the time that leases are measured by."""
        return clock(connection) if connection is not None else stamp(datetime.now(UTC))

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _trying(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        with uninterrupted():  # a task that is stopped must not leave a connection in the middle of a transaction
            return self._try(work, writing=writing)

    def _try(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        unsure = False
        for attempt in range(_ATTEMPTS):
            try:
                with self._reached(writing=writing) as connection:
                    with connection.begin():
                        result = work(connection)
                        unsure = writing
                    self._answered = True
                    return result
            except DBAPIError as error:
                if not _passing(error):
                    raise _told(error, self.url) from error
                last: Exception = error
            except Unreachable as error:
                if not unsure and not self._answered and attempt >= 3:
                    raise  # it never answered: likely the wrong address, and nobody wants to wait for that
                last = error
            time.sleep(min(2.0, 0.05 * 2**attempt) * (0.5 + random.random()))
        outcome = "it is unknown whether the last write took effect; nothing was deleted" if unsure else str(last)
        look = "look in `runnel log` whether it took effect, and repeat it if not" if unsure else "repeat the command"
        raise Unreachable(
            "DATABASE_UNREACHABLE",
            f"the catalog database {_shown(self.url)} does not answer: {_first_line(outcome)}",
            fix=f"check that it runs, then {look}",
        ) from last

    @contextmanager
    def _reached(self, *, writing: bool = False) -> Iterator[Connection]:
        try:
            connection = self.engine.connect()
        except OperationalError as error:
            raise _told(error, self.url) from error
        except PoolTimeout as error:
            what = "too many threads of this process use the catalog database at once"
            raise Unreachable("DATABASE_BUSY", what, fix="use fewer threads, or repeat") from error
        try:
            if self.is_sqlite:
                connection = connection.execution_options(runnel_begin="BEGIN IMMEDIATE" if writing else "BEGIN")
            elif not writing:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            yield connection
        finally:
            connection.close()


def stamp(moment: datetime) -> str:
    """Return a moment as the text that the database keeps.

    >>> stamp(datetime(2026, 1, 2, 8, tzinfo=UTC))
    '2026-01-02T08:00:00.000000Z'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def clock(connection: Connection) -> str:
    """Return the time that leases are measured by: the database's on PostgreSQL, this machine's on SQLite."""
    if connection.dialect.name == "sqlite":
        return stamp(datetime.now(UTC))
    return stamp(connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one())


def moment(text: str) -> datetime:
    """Return the moment behind a stored time."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise NoSuchModuleError(parsed.get_backend_name())
    except (BadUrl, NoSuchModuleError) as error:
        raise Mistake(
            "DATABASE_URL",
            "lake.catalog is not the address of a SQLite or PostgreSQL database",
            fix="write sqlite:///.runnel/catalog.db or postgresql://user@host/db under [lake] in runnel.toml",
        ) from error
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername.startswith("postgres") else parsed


@cache
def _compiling() -> tuple[Dialect, LRUCache[Any, Any]]:
    """Return what statements are compiled by for SQLite, and those that are: once for all lakes of this process."""
    engine = sa.create_engine("sqlite://")
    engine.connect().close()  # so that the dialect knows its version of SQLite
    return engine.dialect, LRUCache(_MOST_STATEMENTS)


def _sqlite(url: URL) -> Engine:
    dialect, compiled = _compiling()
    pool = sa.create_pool_from_url(url, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False})
    engine = Engine(pool, dialect, url, execution_options={"compiled_cache": compiled})

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, by name
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("runnel_begin", "BEGIN"))

    return engine


def _postgresql(url: URL) -> Engine:
    return sa.create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10})


def _passing(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError):
        return False
    if error.connection_invalidated:
        return True
    text = str(error.orig).lower()
    state = getattr(error.orig, "sqlstate", None)
    return state in _RETRY_STATES or "locked" in text or "busy" in text or "connection" in text


def _told(error: DBAPIError, url: URL) -> RunnelError:
    """Return a database error as one that a user can act on."""
    text = _first_line(str(error.orig))
    shown = _shown(url)
    lowered = text.lower()
    if isinstance(error, IntegrityError):
        return RunnelError("DATABASE_INTEGRITY", f"the catalog database refused a row: {text}", fix="run `runnel fsck`")
    if "disk is full" in lowered or "no space" in lowered:
        return NoRoom(
            "DISK_FULL", f"no space left for the catalog database {shown}", fix="free some space, then repeat"
        )
    if "readonly" in lowered or "read-only" in lowered:
        return RunnelError("DATABASE_READ_ONLY", f"the catalog database {shown} can't be written: {text}")
    if "not a database" in lowered or "malformed" in lowered:
        return RunnelError("DATABASE_DAMAGED", f"{shown} is damaged: {text}", fix="restore it from a backup")
    if url.database and "unable to open" in lowered and not Path(url.database).parent.exists():
        return Mistake(
            "PROJECT_NO_LAKE", f"there is no lake at {shown}", fix="run `runnel init` in the project's folder"
        )
    return Unreachable(
        "DATABASE_UNREACHABLE", f"the catalog database {shown} does not answer: {text}", fix="check that it runs"
    )


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no message"


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)
