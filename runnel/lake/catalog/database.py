"""Open connections and transactions of the catalog database, on SQLite and PostgreSQL.

No transaction stays open during file or network I/O. Leases use the database's clock on PostgreSQL, this machine's
clock on SQLite.
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
from runnel.thread_interrupt import defer_interrupts

T = TypeVar("T")
BUSY_SECONDS = 30.0
_MAX_CACHED_STATEMENTS = 1000
_ATTEMPTS = 12  # about 20 seconds: long enough for a database that restarts
# A serialization failure or deadlock, or the server is shutting down or starting up; retrying helps with all of them.
_RETRY_STATES = ("40001", "40P01", "57P01", "57P02", "57P03", "08006", "08001", "08003")


class Database:
    """One catalog database. Safe to share between threads; a forked process opens its own."""

    def __init__(self, url: str) -> None:
        self.url = _parse_url(url)
        self._has_answered = False
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = _create_sqlite_engine(self.url) if self.is_sqlite else _create_postgresql_engine(self.url)

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """Open a read-only transaction that sees one snapshot of the database."""
        with self._connect() as connection, connection.begin():
            yield connection

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a read-only transaction and return its result; retry if the database is locked or restarted."""
        return self._run_uninterrupted(work, writing=False)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one writing transaction and return its result.

        `work` may run several times, even after an attempt that was committed without our knowing. If that matters,
        `work` takes the lake's lock, which waits for such an attempt to end, and then checks whether it was committed.
        """
        return self._run_uninterrupted(work, writing=True)

    def now(self, connection: Connection | None = None) -> str:
        """Return the time that leases use."""
        return read_clock(connection) if connection is not None else format_time(datetime.now(UTC))

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _run_uninterrupted(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        with defer_interrupts():  # a task that is stopped must not leave a connection in the middle of a transaction
            return self._run_with_retries(work, writing=writing)

    def _run_with_retries(self, work: Callable[[Connection], T], *, writing: bool) -> T:
        # By hand, not by `backoff`: importing tenacity takes 10 ms, which every command would pay for its first
        # transaction, and each further transaction 40 microseconds.
        is_outcome_unknown = False
        for attempt in range(_ATTEMPTS):
            try:
                with self._connect(writing=writing) as connection:
                    with connection.begin():
                        result = work(connection)
                        is_outcome_unknown = writing
                    self._has_answered = True
                    return result
            except DBAPIError as error:
                if not _is_transient(error):
                    raise _translate_error(error, self.url) from error
                last_error: Exception = error
            except Unreachable as error:
                if not is_outcome_unknown and not self._has_answered and attempt >= 3:
                    raise  # it never answered, so likely the address is wrong: don't let the user wait
                last_error = error
            time.sleep(min(2.0, 0.05 * 2**attempt) * (0.5 + random.random()))
        reason = (
            "it is unknown whether the last write took effect; nothing was deleted"
            if is_outcome_unknown
            else str(last_error)
        )
        advice = (
            "check in `runnel log` whether it took effect, and repeat the command if it did not"
            if is_outcome_unknown
            else "repeat the command"
        )
        raise Unreachable(
            "DATABASE_UNREACHABLE",
            f"the catalog database {_hide_password(self.url)} does not answer: {_first_line(reason)}",
            fix=f"check that it runs, then {advice}",
        ) from last_error

    @contextmanager
    def _connect(self, *, writing: bool = False) -> Iterator[Connection]:
        try:
            connection = self.engine.connect()
        except OperationalError as error:
            raise _translate_error(error, self.url) from error
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


def format_time(moment: datetime) -> str:
    """Return a time as the text that the database stores.

    >>> format_time(datetime(2026, 1, 2, 8, tzinfo=UTC))
    '2026-01-02T08:00:00.000000Z'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_clock(connection: Connection) -> str:
    """Return the time that leases use: the database's clock on PostgreSQL, this machine's on SQLite."""
    if connection.dialect.name == "sqlite":
        return format_time(datetime.now(UTC))
    return format_time(connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one())


def parse_time(text: str) -> datetime:
    """Return the time that a stored text means."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def _parse_url(url: str) -> URL:
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
def _sqlite_compiler() -> tuple[Dialect, LRUCache[Any, Any]]:
    """Return SQLite's dialect and a cache of compiled statements, shared by all lakes of this process."""
    engine = sa.create_engine("sqlite://")
    engine.connect().close()  # so that the dialect knows its version of SQLite
    return engine.dialect, LRUCache(_MAX_CACHED_STATEMENTS)


def _create_sqlite_engine(url: URL) -> Engine:
    dialect, statement_cache = _sqlite_compiler()
    pool = sa.create_pool_from_url(url, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False})
    engine = Engine(pool, dialect, url, execution_options={"compiled_cache": statement_cache})

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, by name
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("runnel_begin", "BEGIN"))

    return engine


def _create_postgresql_engine(url: URL) -> Engine:
    return sa.create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 10})


def _is_transient(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError):
        return False
    if error.connection_invalidated:
        return True
    text = str(error.orig).lower()
    state = getattr(error.orig, "sqlstate", None)
    return state in _RETRY_STATES or "locked" in text or "busy" in text or "connection" in text


def _translate_error(error: DBAPIError, url: URL) -> RunnelError:
    """Return the RunnelError for a database error, with what the user can do about it."""
    text = _first_line(str(error.orig))
    safe_url = _hide_password(url)
    lowered = text.lower()
    if isinstance(error, IntegrityError):
        return RunnelError("DATABASE_INTEGRITY", f"the catalog database refused a row: {text}", fix="run `runnel fsck`")
    if "disk is full" in lowered or "no space" in lowered:
        return NoRoom(
            "DISK_FULL", f"no space left for the catalog database {safe_url}", fix="free some space, then repeat"
        )
    if "readonly" in lowered or "read-only" in lowered:
        return RunnelError("DATABASE_READ_ONLY", f"the catalog database {safe_url} can't be written: {text}")
    if "not a database" in lowered or "malformed" in lowered:
        return RunnelError("DATABASE_DAMAGED", f"{safe_url} is damaged: {text}", fix="restore it from a backup")
    if url.database and "unable to open" in lowered and not Path(url.database).parent.exists():
        return Mistake(
            "PROJECT_NO_LAKE", f"there is no lake at {safe_url}", fix="run `runnel init` in the project's folder"
        )
    if url.get_backend_name() == "postgresql":
        return _translate_connection_failure(text, url)
    return Unreachable(
        "DATABASE_UNREACHABLE", f"the catalog database {safe_url} does not answer: {text}", fix="check that it runs"
    )


def _translate_connection_failure(text: str, url: URL) -> RunnelError:
    """Return the error of PostgreSQL that refuses a connection or does not answer: which part of the address is wrong.

    The message is the only source: libpq gives no SQLSTATE for a failed connection.
    """
    from runnel.connection_failure import ServerAddress, describe_unreachable, find_cause

    cause, address, safe_url = find_cause(text), ServerAddress(url.host or "", url.port or 5432), _hide_password(url)
    if cause == "database":
        what = f"there is no database `{url.database}` at {address}, which lake.catalog names"
        return Mistake("DATABASE_MISSING", what, fix=f"create it (`createdb {url.database}`), or correct lake.catalog")
    if cause == "login":
        reason = text.rpartition("FATAL:")[2].strip()
        what = f"PostgreSQL at {address} refuses the role `{url.username}` of lake.catalog: {reason}"
        return Mistake("DATABASE_LOGIN", what, fix="correct the user or the password in lake.catalog, or create it")
    reason, fix = describe_unreachable(cause, address) or (text, "check that it runs")
    what = f"the catalog database {safe_url} does not answer: {reason}"
    return Unreachable("DATABASE_UNREACHABLE", what, fix=fix)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no message"


def _hide_password(url: URL) -> str:
    return url.render_as_string(hide_password=True)
