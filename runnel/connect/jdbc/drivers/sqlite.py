"""Read SQLite: one file, in one transaction. Its columns hold values of any type, whatever type they declare."""

import hashlib
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from runnel.connect.jdbc import driver_errors
from runnel.connect.jdbc.database import (
    ALIAS,
    Batch,
    DatabaseColumn,
    Row,
    SourceDatabase,
    is_duration,
    split_table_name,
)
from runnel.connect.jdbc.drivers.sqlite_types import build_column_from_values, build_declared_column
from runnel.declare.options.duration import parse_duration
from runnel.errors import Mistake
from runnel.internal_names import INTERNAL_MARK

_BATCH_ROWS = 20_000
_BATCH_BYTES = 64 * 1024 * 1024
_MAX_ARGUMENTS = 127  # of a function, in every version of SQLite
_VIEW = f'"{INTERNAL_MARK}runnel view"'
_DAY_SECONDS = 86_400
_SLACK_DAYS = 1e-7  # the rounding error of a day as a floating-point number
_TABLES = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"


class _ChecksumAggregate:
    """An aggregate: the sum of a hash of each row."""

    def __init__(self) -> None:
        self._sum = 0

    def step(self, *values: Any) -> None:
        digest = hashlib.blake2b(repr(values).encode(errors="surrogatepass"), digest_size=8).digest()
        self._sum = (self._sum + int.from_bytes(digest)) & (2**64 - 1)

    def finalize(self) -> str:
        return f"{self._sum:x}"


def _hash_values(*values: Any) -> bytes:
    """Return a hash of some values of a row, for rows with more values than a function has arguments."""
    return hashlib.blake2b(repr(values).encode(errors="surrogatepass"), digest_size=16).digest()


class SqliteDatabase(SourceDatabase):
    """A SQLite file."""

    _connection: sqlite3.Connection | None = None

    def connect(self) -> sqlite3.Connection:
        """Return a new connection that may also write; it creates the file if there is none."""
        with self._translate_errors():
            return sqlite3.connect(self.address.database, isolation_level=None, check_same_thread=False)

    def begin(self) -> None:
        """Open the file, which must exist, and begin to read."""
        if not Path(self.address.database).is_file():
            what = f"there is no file {self.address.database}"
            fix = "correct the url: sqlite:///data/shop.db is below the project's folder, sqlite:////abs/shop.db is not"
            raise Mistake("SOURCE_NO_DATABASE", what, at=self.at, fix=fix)
        with self._translate_errors():
            uri = f"{Path(self.address.database).absolute().as_uri()}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            self._connection = connection
            connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
            connection.create_aggregate("runnel_sum", -1, _ChecksumAggregate)  # type: ignore[arg-type]
            connection.create_function("runnel_hash", -1, _hash_values, deterministic=True)
            connection.execute("BEGIN")
            connection.execute(
                "SELECT count(*) FROM sqlite_schema"
            ).fetchall()  # a transaction begins when it first reads

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def fetch_row(self, sql: str) -> Row:
        """Return the one row of a query."""
        return self._fetch_rows(sql)[0]

    def list_tables(self) -> list[str]:
        """Return tables and views."""
        return [name for (name,) in self._fetch_rows(_TABLES)]

    def quote(self, name: str) -> str:
        """Return a name in double quotes."""
        return '"' + name.replace('"', '""') + '"'

    def table_sql(self, name: str) -> str:
        """Return a table or view of the file."""
        _, table_name = split_table_name(name)
        if table_name.lower() not in [existing_name.lower() for existing_name in self.list_tables()]:
            raise driver_errors.no_table(self.address, name, self.list_tables(), self.at)
        return self.quote(table_name)

    def describe_columns(self, relation: str) -> tuple[DatabaseColumn, ...]:
        """Return columns by their declared types, or by their values if they declare none."""
        self._fetch_rows(f"DROP VIEW IF EXISTS temp.{_VIEW}")
        self._fetch_rows(f"CREATE TEMP VIEW {_VIEW} AS SELECT * FROM {relation}")
        described = [(name, kind) for _, name, kind, *_ in self._fetch_rows(f"PRAGMA temp.table_info({_VIEW})")]
        columns = []
        for name, kind in described:
            sql = f"{ALIAS}.{self.quote(name)}"
            columns.append(
                build_declared_column(name, sql, kind) or self._build_column_from_values(name, sql, kind, relation)
            )
        return tuple(columns)

    def _build_column_from_values(self, name: str, sql: str, kind: str, relation: str) -> DatabaseColumn:
        value_types = {
            value_type for (value_type,) in self._fetch_rows(f"SELECT DISTINCT typeof({sql}) FROM {relation}")
        }
        return build_column_from_values(name, sql, kind, value_types)

    def checksum_sql(self, columns: Sequence[DatabaseColumn]) -> str:
        """Return the sum of a hash of each row, which this process computes."""
        values = [column.hashed for column in columns]
        while len(values) > _MAX_ARGUMENTS:
            starts = range(0, len(values), _MAX_ARGUMENTS)
            values = [f"runnel_hash({', '.join(values[start : start + _MAX_ARGUMENTS])})" for start in starts]
        return f"runnel_sum({', '.join(values)})"

    def text_sql(self, sql: str) -> str:
        """Return the SQL of a value as a SQL literal; null stays null."""
        return f"CASE WHEN {sql} IS NOT NULL THEN quote({sql}) END"

    def literal_sql(self, value: str, _column: DatabaseColumn) -> str:
        """Return the value unchanged: `text_sql` already made it a literal."""
        return value

    def earlier_sql(self, value: str, column: DatabaseColumn, overlap: str) -> str:
        """Return a value less a number, or an earlier time in the same text format."""
        if not is_duration(overlap):
            return f"({value} - {overlap})"
        time_facts = self.fetch_row(f"SELECT julianday({value}), length({value}), instr({value}, 'T')")
        if time_facts[0] is None or not value.startswith("'"):
            what = (
                f"`overlap` is {overlap}, but the watermark `{column.name}` has the value {value}, which is not a time"
            )
            fix = "write overlap=100, a number, or leave it out"
            raise Mistake("SOURCE_OVERLAP", what, at=self.at, fix=fix)
        pattern = (
            "%Y-%m-%d"
            if time_facts[1] == len("2026-01-01")
            else "%Y-%m-%dT%H:%M:%S"
            if time_facts[2]
            else "%Y-%m-%d %H:%M:%S"
        )
        return (
            f"strftime('{pattern}', julianday({value}) - {parse_duration(overlap) / _DAY_SECONDS + _SLACK_DAYS:.10f})"
        )

    def batches(self, columns: Sequence[DatabaseColumn], from_clause: str) -> "Generator[Batch]":
        """Yield rows as Python values."""
        assert self._connection is not None
        select = ", ".join(column.read for column in columns)
        with self._translate_errors():
            cursor = self._connection.execute(f"SELECT {select} FROM {from_clause}")
            batch: list[Row] = []
            size = 0
            for row in cursor:
                batch.append(row)
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
            if batch:
                yield batch

    def _fetch_rows(self, sql: str) -> list[Row]:
        assert self._connection is not None
        with self._translate_errors():
            return self._connection.execute(sql).fetchall()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "unable to open" in str(error):
                raise driver_errors.unreachable(self.address, error, self.at) from None
            raise driver_errors.wrong_query(self.address, error, self.at) from None
        except sqlite3.Error as error:
            raise driver_errors.failed(self.address, error, self.at) from None
