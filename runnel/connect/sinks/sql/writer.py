"""Define what writing to any database needs: one connection, one transaction, rows in bulk.

Each kind of database has its own module for its driver and its SQL.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from runnel.connect.jdbc.database import split_table_name
from runnel.connect.jdbc.url import DatabaseAddress, parse_address
from runnel.internal_names import internal_column
from runnel.lake.scan.duckdb_types import quote_identifier

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.types import IcebergType

    from runnel.declare.model.endpoints import Jdbc

Row = tuple[Any, ...]
STAGING_TABLE = "runnel_staged"
ATTEMPT = internal_column("attempt")


@dataclass(frozen=True)
class SinkColumn:
    """A column to write: its type in the database, and the DuckDB SQL that reads it from the lake."""

    name: str
    sql_type: str
    read_sql: str


class SqlWriter(ABC):
    """A database that is written to in one transaction. Entering connects; leaving rolls back what is not committed."""

    def __init__(self, address: DatabaseAddress, table: str, at: str) -> None:
        self.address = address
        self.declared_table = table
        self.schema, self.table = split_table_name(table)
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
        return quote_identifier(name)

    def join_names(self, names: Sequence[str]) -> str:
        """Return a list of columns as SQL."""
        return ", ".join(map(self.quote, names))

    @abstractmethod
    def connect(self) -> None:
        """Connect; raises Unreachable if the database does not answer."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def begin(self) -> None:
        """Begin the transaction that `commit` ends."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the transaction."""

    @abstractmethod
    def execute(self, sql: str) -> None:
        """Run a statement."""

    @abstractmethod
    def fetch_rows(self, sql: str) -> list[Row]:
        """Return the rows of a query."""

    @abstractmethod
    def read_columns(self) -> Mapping[str, str] | None:
        """Return the columns of the table with their types; None if the table does not exist."""

    @abstractmethod
    def build_column(self, name: str, kind: "IcebergType", *, is_key: bool) -> SinkColumn:
        """Return how a column of the lake is written."""

    @abstractmethod
    def load(self, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> None:
        """Add rows to the table."""

    @abstractmethod
    def stage(self, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> str:
        """Replace the content of a temporary table by these rows, and return it as SQL for a FROM clause.

        There it has the name `runnel_staged`.
        """

    @abstractmethod
    def upsert(self, columns: Sequence[SinkColumn], key: Sequence[str], staged: str) -> None:
        """Insert staged rows, or update the rows with the same key."""

    def clear(self) -> None:
        """Remove all rows of the table."""
        self.execute(f"DELETE FROM {self.target}")

    def delete(self, key: Sequence[str], staged: str) -> None:
        """Remove the rows whose keys are staged."""
        key_condition = " AND ".join(
            f"{STAGING_TABLE}.{self.quote(name)} = {self.target}.{self.quote(name)}" for name in key
        )
        self.execute(f"DELETE FROM {self.target} WHERE EXISTS (SELECT 1 FROM {staged} WHERE {key_condition})")

    def create_table(self, columns: Sequence[SinkColumn], key: Sequence[str]) -> None:
        """Create the table."""
        definitions = [f"{self.quote(column.name)} {column.sql_type}" for column in columns]
        definitions += [f"PRIMARY KEY ({self.join_names(key)})"] if key else []
        self.execute(f"CREATE TABLE {self.target} ({', '.join(definitions)})")

    def add_column(self, column: SinkColumn) -> None:
        """Add a column to the table."""
        self.execute(f"ALTER TABLE {self.target} ADD COLUMN {self.quote(column.name)} {column.sql_type}")


class StagingWriter(SqlWriter):
    """A database in which several connections write rows to a table that is not visible to anybody else's queries.

    Such a table is in the schema of the target, with columns of the types that `stage` gives them.
    """

    @abstractmethod
    def create_staging_table(self, name: str, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> None:
        """Create a staging table; `rows`, of which there are none, have its columns."""

    @abstractmethod
    def load_staging_table(self, name: str, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> None:
        """Add rows to a staging table."""

    @abstractmethod
    def list_tables(self, prefix: str) -> list[str]:
        """Return the tables of the schema whose names begin with a prefix."""

    @abstractmethod
    def load_staged(self, columns: Sequence[SinkColumn], staged: str) -> None:
        """Add staged rows to the table."""

    def drop_staging_table(self, name: str) -> None:
        """Remove a staging table, if it still exists."""
        self.execute(f"DROP TABLE IF EXISTS {self.qualify(name)}")

    def qualify(self, name: str) -> str:
        """Return a table of the target's schema as SQL."""
        return ".".join(self.quote(part) for part in (self.schema, name) if part)

    def select_staged(self, name: str, attempts: Sequence[int]) -> str:
        """Return the rows of some attempts as SQL for a FROM clause."""
        condition = f"{self.quote(ATTEMPT)} IN ({', '.join(map(str, attempts)) or 'NULL'})"
        return f"(SELECT * FROM {self.qualify(name)} WHERE {condition}) AS {STAGING_TABLE}"


def select_rows_sql(columns: Sequence[SinkColumn], source: str) -> str:
    """Return a SELECT for DuckDB of the columns to write, from a view or a subquery."""
    select_list = ", ".join(f"{column.read_sql} AS {quote_identifier(column.name)}" for column in columns)
    return f"SELECT {select_list} FROM {source}"


def build_writer(target: "Jdbc", root: Path, at: str) -> SqlWriter:
    """Return the writer of a database, not connected yet."""
    address, table = parse_address(target, root, at), target.table or ""
    if address.kind != "sqlite":
        return build_staging_writer(address, table, at)
    from runnel.connect.sinks.sql.sqlite import SqliteWriter

    return SqliteWriter(address, table, at)


def build_staging_writer(address: DatabaseAddress, table: str, at: str) -> StagingWriter:
    """Return the writer of a database server, not connected yet."""
    if address.kind == "postgresql":
        from runnel.connect.sinks.sql.postgres import PostgresWriter

        return PostgresWriter(address, table, at)
    from runnel.connect.sinks.sql.mysql import MySqlWriter

    return MySqlWriter(address, table, at)
