"""What writing to a database takes, whichever it is: one connection, one transaction, rows in bulk.

Each kind of database has a module of its own that knows its driver and its SQL.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from runnel.connect.jdbc.database import split_name
from runnel.connect.jdbc.url import Address, address_of
from runnel.lake.scan.duckdb_types import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.types import IcebergType

    from runnel.declare.model.endpoints import Jdbc

Row = tuple[Any, ...]
STAGED = "runnel_staged"


@dataclass(frozen=True)
class Column:
    """A column on its way out: what the database calls its type, and the DuckDB SQL that reads it."""

    name: str
    kind: str
    read: str


class Writer(ABC):
    """A database that is written to in one transaction. Entering connects; what was not committed is undone."""

    def __init__(self, address: Address, table: str, at: str) -> None:
        self.address = address
        self.schema, self.table = split_name(table)
        self.at = at

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def target(self) -> str:
        """Return the table as SQL."""
        return ".".join(self.quote(part) for part in (self.schema, self.table) if part)

    def quote(self, name: str) -> str:
        """Return a name as SQL."""
        return quoted(name)

    def names(self, names: Sequence[str]) -> str:
        """Return a list of columns as SQL."""
        return ", ".join(map(self.quote, names))

    @abstractmethod
    def connect(self) -> None:
        """Connect; raises Unreachable where nothing answers."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    @abstractmethod
    def begin(self) -> None:
        """Begin the transaction that `commit` ends."""

    @abstractmethod
    def commit(self) -> None:
        """Make all of it last."""

    @abstractmethod
    def execute(self, sql: str) -> None:
        """Do something."""

    @abstractmethod
    def rows(self, sql: str) -> list[Row]:
        """Return what a query says."""

    @abstractmethod
    def known(self) -> Mapping[str, str] | None:
        """Return the columns of the table with their types; None where there is no such table."""

    @abstractmethod
    def column(self, name: str, kind: "IcebergType", *, is_key: bool) -> Column:
        """Return how a column of the lake goes out."""

    @abstractmethod
    def load(self, columns: Sequence[Column], rows: "pa.RecordBatchReader") -> None:
        """Add rows to the table."""

    @abstractmethod
    def stage(self, columns: Sequence[Column], rows: "pa.RecordBatchReader") -> None:
        """Put rows into a temporary table, in the place of what was in it."""

    @abstractmethod
    def upsert(self, columns: Sequence[Column], key: Sequence[str]) -> None:
        """Let the staged rows take the place of those with the same key, or come to them."""

    def clear(self) -> None:
        """Remove all rows of the table."""
        self.execute(f"DELETE FROM {self.target}")

    def delete(self, key: Sequence[str]) -> None:
        """Remove the rows whose keys are staged."""
        same = " AND ".join(f"{STAGED}.{self.quote(one)} = {self.target}.{self.quote(one)}" for one in key)
        self.execute(f"DELETE FROM {self.target} WHERE EXISTS (SELECT 1 FROM {STAGED} WHERE {same})")

    def create(self, columns: Sequence[Column], key: Sequence[str]) -> None:
        """Make the table."""
        made = [f"{self.quote(column.name)} {column.kind}" for column in columns]
        made += [f"PRIMARY KEY ({self.names(key)})"] if key else []
        self.execute(f"CREATE TABLE {self.target} ({', '.join(made)})")

    def add(self, column: Column) -> None:
        """Add a column to the table."""
        self.execute(f"ALTER TABLE {self.target} ADD COLUMN {self.quote(column.name)} {column.kind}")


def writer_of(target: "Jdbc", root: Path, at: str) -> Writer:
    """Return what writes to a database, not connected yet."""
    address, table = address_of(target, root, at), target.table or ""
    if address.kind == "postgresql":
        from runnel.connect.sinks.sql.postgres import Postgres

        return Postgres(address, table, at)
    if address.kind == "mysql":
        from runnel.connect.sinks.sql.mysql import MySql

        return MySql(address, table, at)
    from runnel.connect.sinks.sql.sqlite import Sqlite

    return Sqlite(address, table, at)
