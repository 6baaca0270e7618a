"""Define what reading from any database needs: one connection with one snapshot, and its SQL dialect.

Each kind of database has its own module for its driver.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Union

from runnel.connect.jdbc.url import DatabaseAddress, parse_address
from runnel.declare.model.endpoints import Jdbc

if TYPE_CHECKING:
    import pyarrow as pa

TypeFamily = Literal["number", "time", "other"]
Row = tuple[Any, ...]
Batch = Union["pa.RecordBatch", Sequence[Row]]
"""Rows as Arrow or as Python values; never empty."""
ALIAS = "t"
T = TypeVar("T")


@dataclass(frozen=True)
class DatabaseColumn:
    """A column of a database, and the name of the Arrow type that it is read as; Arrow itself is not imported yet.

    `database_type` is what the database calls its type. `raw` is the column as SQL, `read` the SQL that reads it,
    `hashed` the SQL that its checksum uses.
    """

    name: str
    database_type: str
    arrow_type: str
    raw: str
    read: str
    hashed: str
    family: TypeFamily = "other"
    safe: str | None = None  # SQL that reads any value, if `read` is faster but may fail


@dataclass(frozen=True)
class RowEstimate:
    """About how many rows there are, and how many bytes one has."""

    rows: int
    row_bytes: int


class FastReadFailed(Exception):
    """The fast way to read a column failed at a value; the rows must be read again with `safe`."""


class SourceDatabase(ABC):
    """A database that is read in one transaction, so that all its answers are of the same moment.

    `at` is the place in the user's file that declares it. Entering connects and begins; leaving ends both.
    """

    def __init__(self, address: DatabaseAddress, at: str) -> None:
        self.address = address
        self.at = at

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def begin(self) -> None:
        """Connect, and begin a transaction that only reads."""

    @abstractmethod
    def close(self) -> None:
        """End the transaction and the connection. A second call does nothing."""

    @abstractmethod
    def fetch_row(self, sql: str) -> Row:
        """Return the one row of a query."""

    @abstractmethod
    def list_tables(self) -> list[str]:
        """Return the names of tables and views that may be read."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """Return a name as SQL."""

    @abstractmethod
    def describe_columns(self, relation: str) -> tuple[DatabaseColumn, ...]:
        """Return the columns of a relation that `relation_sql` returned."""

    def relation_sql(self, origin: Jdbc) -> str:
        """Return the SQL behind FROM, with the alias `t`; raises if there is no such table."""
        if origin.query is not None:
            return f"({origin.query.strip().rstrip(';')}\n) AS {ALIAS}"
        assert origin.table is not None
        return f"{self.table_sql(origin.table)} AS {ALIAS}"

    @abstractmethod
    def table_sql(self, name: str) -> str:
        """Return the SQL of a table that a user named; raises if there is no such table."""

    @abstractmethod
    def checksum_sql(self, columns: Sequence[DatabaseColumn]) -> str:
        """Return the SQL of an aggregate, as text, that is the same for the same rows in any order."""

    @abstractmethod
    def text_sql(self, sql: str) -> str:
        """Return the SQL of a value as text, from which `literal_sql` builds the same value again."""

    @abstractmethod
    def literal_sql(self, value: str, column: DatabaseColumn) -> str:
        """Return a value of a column as SQL."""

    @abstractmethod
    def earlier_sql(self, value: str, column: DatabaseColumn, overlap: str) -> str:
        """Return the SQL of a value less the overlap."""

    @abstractmethod
    def batches(self, columns: Sequence[DatabaseColumn], from_clause: str) -> "Generator[Batch]":
        """Yield rows in batches; their types may not be those of the columns yet."""

    def split_conditions(self, relation: str, origin: Jdbc, columns: Sequence[DatabaseColumn]) -> list[str]:  # noqa: ARG002 - drivers override it
        """Return conditions that split the rows of a table between connections; none if that is not possible."""
        return []

    def share_snapshot(self) -> "AbstractContextManager[SourceDatabase]":
        """Return one more connection with the same snapshot; only called if there are `split_conditions`."""
        raise AssertionError(f"{self.address.kind} shares its rows out among no connections")

    def hold_snapshot(self) -> str:
        """Return the name by which other machines share the snapshot while this connection is open."""
        raise AssertionError(f"{self.address.kind} shares its snapshot with no other machine")

    @contextmanager
    def run_alongside(self, work: Callable[[], T]) -> Iterator[Callable[[], T]]:
        """Run a query before rows are read or while they are; yield a function that returns its result."""
        result = work()
        yield lambda: result

    def is_unique(self, origin: Jdbc, key: Sequence[str]) -> bool:  # noqa: ARG002 - drivers override it
        """Tell whether the database itself guarantees that a key is unique."""
        return False

    def is_indexed(self, origin: Jdbc, column: str) -> bool:  # noqa: ARG002 - drivers override it
        """Tell whether an index of the table begins with a column, so that a few rows are found quickly."""
        return False

    def estimate_rows(self, origin: Jdbc) -> int | None:  # noqa: ARG002 - drivers override it
        """Return about how many rows there are, if that costs nothing."""
        return None

    def estimate_size(self, origin: Jdbc, relation: str, columns: Sequence[DatabaseColumn]) -> "RowEstimate":  # noqa: ARG002 - drivers override it
        """Return about how many rows a relation has and how long they are, by the database's statistics."""
        return RowEstimate(0, 0)


def build_database(origin: Jdbc, root: Path, at: str) -> SourceDatabase:
    """Return the database of an origin, not connected yet."""
    address = parse_address(origin, root, at)
    if address.kind == "postgresql":
        from runnel.connect.jdbc.drivers.postgres import PostgresDatabase

        return PostgresDatabase(address, at)
    if address.kind == "mysql":
        from runnel.connect.jdbc.drivers.mysql import MySqlDatabase

        return MySqlDatabase(address, at)
    from runnel.connect.jdbc.drivers.sqlite import SqliteDatabase

    return SqliteDatabase(address, at)


def open_snapshot(address: DatabaseAddress, at: str, snapshot: str) -> SourceDatabase:
    """Return a database that reads rows in a snapshot that another connection holds: only PostgreSQL can do it."""
    from runnel.connect.jdbc.drivers.postgres import PostgresDatabase

    database = PostgresDatabase(address, at)
    database.snapshot = snapshot
    return database


def is_duration(overlap: str) -> bool:
    """Tell whether an overlap is a duration and not a number.

    >>> is_duration("10 minutes"), is_duration("2.5")
    (True, False)
    """
    return any(letter.isalpha() for letter in overlap)


def split_table_name(table: str) -> tuple[str | None, str]:
    """Return the schema and the name of a table as a user writes it; a quoted part may contain a dot.

    >>> split_table_name("public.orders"), split_table_name("orders")
    (('public', 'orders'), (None, 'orders'))
    >>> split_table_name('"my.schema"."my table"')
    ('my.schema', 'my table')
    """
    import re

    parts = [
        quoted_part.replace('""', '"') if quoted_part else plain_part
        for quoted_part, plain_part in re.findall(r'"((?:[^"]|"")+)"|([^".]+)', table)
    ]
    return (".".join(parts[:-1]) or None, parts[-1]) if parts else (None, table)
