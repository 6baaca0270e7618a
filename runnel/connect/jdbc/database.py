"""What reading from any database takes: one connection with one snapshot, and its way to say things in SQL.

Each kind of database has a module of its own that knows its driver.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Union

from runnel.connect.jdbc.url import Address, address_of
from runnel.declare.model.endpoints import Jdbc

if TYPE_CHECKING:
    import pyarrow as pa

Family = Literal["number", "time", "other"]
Row = tuple[Any, ...]
Batch = Union["pa.RecordBatch", Sequence[Row]]
"""Rows as Arrow, or as Python's values; never none of them."""
ALIAS = "t"
T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """A column as the database has it, and as which type of Arrow it is read, by its name: nothing heavy is needed yet.

    `kind` is what the database calls its type. `raw` is the column as SQL, `read` the SQL that reads it, `hashed` the
    one that its checksum takes.
    """

    name: str
    kind: str
    type: str
    raw: str
    read: str
    hashed: str
    family: Family = "other"
    safe: str | None = None  # reads any value, where `read` is quicker but may fail


class Unfit(Exception):
    """The quick way to read a column met a value that it can't hold; the safe one has to be taken."""


class Database(ABC):
    """A database that is read in one transaction, so that everything it says is about the same moment.

    `at` is where the user declared it. Entering connects and begins; leaving ends both.
    """

    def __init__(self, address: Address, at: str) -> None:
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
        """End it. Does nothing a second time."""

    @abstractmethod
    def row(self, sql: str) -> Row:
        """Return the one row of a query."""

    @abstractmethod
    def tables(self) -> list[str]:
        """Return the names of tables and views that may be read."""

    @abstractmethod
    def quote(self, name: str) -> str:
        """Return a name as SQL."""

    @abstractmethod
    def columns(self, relation: str) -> tuple[Column, ...]:
        """Return the columns of what `relation` made."""

    def relation(self, origin: Jdbc) -> str:
        """Return what stands behind FROM, with the alias `t`; raises where there is no such table."""
        if origin.query is not None:
            return f"({origin.query.strip().rstrip(';')}\n) AS {ALIAS}"
        assert origin.table is not None
        return f"{self.table(origin.table)} AS {ALIAS}"

    @abstractmethod
    def table(self, name: str) -> str:
        """Return a table, as a user names it, as SQL; raises where there is no such table."""

    @abstractmethod
    def checksum(self, columns: Sequence[Column]) -> str:
        """Return an aggregate that is the same for the same rows in any order, as text."""

    @abstractmethod
    def text(self, sql: str) -> str:
        """Return the SQL of a value's text, from which `literal` makes the same value again."""

    @abstractmethod
    def literal(self, value: str, column: Column) -> str:
        """Return a value of a column as SQL."""

    @abstractmethod
    def earlier(self, value: str, column: Column, overlap: str) -> str:
        """Return, as SQL, the value that is so much before another one."""

    @abstractmethod
    def batches(self, columns: Sequence[Column], rest: str) -> "Generator[Batch]":
        """Yield columns of rows; `rest` is what stands behind FROM. Types may not be those of the columns yet."""

    def splits(self, relation: str, origin: Jdbc, columns: Sequence[Column]) -> list[str]:
        """Return conditions that share the rows of a table out among connections; none where that is not possible."""
        return []

    def another(self) -> "AbstractContextManager[Database]":
        """Return one more connection that sees the same moment; only asked for where there are `splits`."""
        raise AssertionError(f"{self.address.kind} shares its rows out among no connections")

    @contextmanager
    def aside(self, work: Callable[[], T]) -> Iterator[Callable[[], T]]:
        """Do something that asks the database, before or while rows are read; yield how to get what it returned."""
        done = work()
        yield lambda: done

    def is_unique(self, origin: Jdbc, key: Sequence[str]) -> bool:
        """Tell whether the database itself sees to it that a key is there once."""
        return False

    def is_indexed(self, origin: Jdbc, column: str) -> bool:
        """Tell whether an index of the table has its rows in the order of a column, so that few are found at once."""
        return False

    def estimate(self, origin: Jdbc) -> int | None:
        """Return about how many rows there are, where that costs nothing."""
        return None


def database_of(origin: Jdbc, root: Path, at: str) -> Database:
    """Return the database of an origin, not connected yet."""
    address = address_of(origin, root, at)
    if address.kind == "postgresql":
        from runnel.connect.jdbc.drivers.postgres import Postgres

        return Postgres(address, at)
    if address.kind == "mysql":
        from runnel.connect.jdbc.drivers.mysql import MySql

        return MySql(address, at)
    from runnel.connect.jdbc.drivers.sqlite import Sqlite

    return Sqlite(address, at)


def is_duration(overlap: str) -> bool:
    """Tell whether an overlap is a time and not a number.

    >>> is_duration("10 minutes"), is_duration("2.5")
    (True, False)
    """
    return any(letter.isalpha() for letter in overlap)


def split_name(table: str) -> tuple[str | None, str]:
    """Return the schema and the name of a table as a user writes it; a quoted part may hold a dot.

    >>> split_name("public.orders"), split_name("orders"), split_name('"my.schema"."my table"')
    (('public', 'orders'), (None, 'orders'), ('my.schema', 'my table'))
    """
    import re

    parts = [one.replace('""', '"') if one else other for one, other in re.findall(r'"((?:[^"]|"")+)"|([^".]+)', table)]
    return (".".join(parts[:-1]) or None, parts[-1]) if parts else (None, table)
