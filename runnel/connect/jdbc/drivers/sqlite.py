"""SQLite: one file, read in one transaction. Its columns hold values of any type, whatever they are declared as."""

import hashlib
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from runnel.connect.jdbc import driver_errors
from runnel.connect.jdbc.database import ALIAS, Batch, Column, Database, Row, is_duration, split_name
from runnel.connect.jdbc.drivers.sqlite_types import declared, found_in
from runnel.declare.options.duration import seconds_of
from runnel.errors import Mistake
from runnel.internal_names import INTERNAL_MARK

_BATCH_ROWS = 20_000
_BATCH_BYTES = 64 * 1024 * 1024
_VIEW = f'"{INTERNAL_MARK}runnel view"'
_DAY_SECONDS = 86_400
_SLACK_DAYS = 1e-7  # what a day as a floating-point number may be off
_TABLES = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"


class _Sum:
    """An aggregate: the sum of a hash of each row."""

    def __init__(self) -> None:
        self._sum = 0

    def step(self, *values: Any) -> None:
        digest = hashlib.blake2b(repr(values).encode(errors="surrogatepass"), digest_size=8).digest()
        self._sum = (self._sum + int.from_bytes(digest)) & (2**64 - 1)

    def finalize(self) -> str:
        return f"{self._sum:x}"


class Sqlite(Database):
    """A file of SQLite."""

    _connection: sqlite3.Connection | None = None

    def connect(self) -> sqlite3.Connection:
        """Return a new connection that may write, for whoever wants to; it makes the file if there is none."""
        with self._asking():
            return sqlite3.connect(self.address.database, isolation_level=None, check_same_thread=False)

    def begin(self) -> None:
        """Open the file, which must be there, and begin to read."""
        if not Path(self.address.database).is_file():
            what = f"there is no file {self.address.database}"
            fix = "correct the url: sqlite:///data/shop.db is below the project's folder, sqlite:////abs/shop.db is not"
            raise Mistake("SOURCE_NO_DATABASE", what, at=self.at, fix=fix)
        with self._asking():
            uri = f"{Path(self.address.database).absolute().as_uri()}?mode=ro"
            made = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            self._connection = made
            made.text_factory = lambda raw: raw.decode(errors="surrogateescape")
            made.create_aggregate("runnel_sum", -1, _Sum)  # type: ignore[arg-type]
            made.execute("BEGIN")
            made.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # a transaction begins when it first reads

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def row(self, sql: str) -> Row:
        """Return the one row of a query."""
        return self._rows(sql)[0]

    def tables(self) -> list[str]:
        """Return tables and views."""
        return [name for (name,) in self._rows(_TABLES)]

    def quote(self, name: str) -> str:
        """Return a name in double quotes."""
        return '"' + name.replace('"', '""') + '"'

    def table(self, name: str) -> str:
        """Return a table or view of the file."""
        _, own = split_name(name)
        if own.lower() not in [one.lower() for one in self.tables()]:
            raise driver_errors.no_table(self.address, name, self.tables(), self.at)
        return self.quote(own)

    def columns(self, relation: str) -> tuple[Column, ...]:
        """Return columns by the types that they are declared with, else by the values that they have."""
        self._rows(f"DROP VIEW IF EXISTS temp.{_VIEW}")
        self._rows(f"CREATE TEMP VIEW {_VIEW} AS SELECT * FROM {relation}")
        described = [(name, kind) for _, name, kind, *_ in self._rows(f"PRAGMA temp.table_info({_VIEW})")]
        made = []
        for name, kind in described:
            sql = f"{ALIAS}.{self.quote(name)}"
            made.append(declared(name, sql, kind) or self._by_values(name, sql, kind, relation))
        return tuple(made)

    def _by_values(self, name: str, sql: str, kind: str, relation: str) -> Column:
        kinds = {found for (found,) in self._rows(f"SELECT DISTINCT typeof({sql}) FROM {relation}")}
        return found_in(name, sql, kind, kinds)

    def checksum(self, columns: Sequence[Column]) -> str:
        """Return the sum of a hash of each row, which this process computes."""
        return f"runnel_sum({', '.join(column.hashed for column in columns)})"

    def text(self, sql: str) -> str:
        """Return a value as SQL that is the same value; nothing for null."""
        return f"CASE WHEN {sql} IS NOT NULL THEN quote({sql}) END"

    def literal(self, value: str, column: Column) -> str:
        """Return what `text` made."""
        return value

    def earlier(self, value: str, column: Column, overlap: str) -> str:
        """Return a value less a number, or the same kind of text of an earlier time."""
        if not is_duration(overlap):
            return f"({value} - {overlap})"
        format = self.row(f"SELECT julianday({value}), length({value}), instr({value}, 'T')")
        if format[0] is None or not value.startswith("'"):
            what = f"`overlap` is {overlap}, but the watermark `{column.name}` has the value {value}, which is no time"
            fix = "write overlap=100, a number, or leave it out"
            raise Mistake("SOURCE_OVERLAP", what, at=self.at, fix=fix)
        pattern = (
            "%Y-%m-%d" if format[1] == len("2026-01-01") else "%Y-%m-%dT%H:%M:%S" if format[2] else "%Y-%m-%d %H:%M:%S"
        )
        return f"strftime('{pattern}', julianday({value}) - {seconds_of(overlap) / _DAY_SECONDS + _SLACK_DAYS:.10f})"

    def batches(self, columns: Sequence[Column], rest: str) -> "Generator[Batch]":
        """Yield rows as Python's values."""
        assert self._connection is not None
        select = ", ".join(column.read for column in columns)
        with self._asking():
            cursor = self._connection.execute(f"SELECT {select} FROM {rest}")
            waiting: list[Row] = []
            size = 0
            for row in cursor:
                waiting.append(row)
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if len(waiting) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                    yield waiting
                    waiting, size = [], 0
            if waiting:
                yield waiting

    def _rows(self, sql: str) -> list[Row]:
        assert self._connection is not None
        with self._asking():
            return self._connection.execute(sql).fetchall()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "unable to open" in str(error):
                raise driver_errors.unreachable(self.address, error, self.at) from None
            raise driver_errors.wrong_query(self.address, error, self.at) from None
        except sqlite3.Error as error:
            raise driver_errors.failed(self.address, error, self.at) from None
