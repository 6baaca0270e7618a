"""Write to a SQLite file."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.types import DecimalType, IcebergType

from runnel.connect.sinks.sql import write_errors
from runnel.connect.sinks.sql.row_values import convert_batches, join_placeholders, to_sqlite_value
from runnel.connect.sinks.sql.writer import STAGING_TABLE, Row, SinkColumn, SqlWriter
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {"BOOLEAN": "INTEGER", "FLOAT": "REAL", "DOUBLE": "REAL", "VARCHAR": "TEXT", "BLOB": "BLOB"}
_BUSY_SECONDS = 30.0


class SqliteWriter(SqlWriter):
    """A connection to a SQLite file, which is created if it does not exist; its folder must exist."""

    _connection: sqlite3.Connection | None = None

    def connect(self) -> None:
        """Open the file."""
        with self._translate_errors():
            self._connection = sqlite3.connect(self.address.database, timeout=_BUSY_SECONDS, isolation_level=None)

    def close(self) -> None:
        """Close the connection; an uncommitted transaction is rolled back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def begin(self) -> None:
        """Begin a write transaction; other connections can read but not write."""
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit."""
        self.execute("COMMIT")

    def execute(self, sql: str) -> None:
        """Run a statement."""
        with self._translate_errors():
            self._live_connection.execute(sql)

    def fetch_rows(self, sql: str) -> list[Row]:
        """Return the rows of a query."""
        with self._translate_errors():
            return self._live_connection.execute(sql).fetchall()

    def read_columns(self) -> Mapping[str, str] | None:
        """Return the columns of the table with their types."""
        with self._translate_errors():
            rows = self._live_connection.execute(
                "SELECT name, type FROM pragma_table_info(?)", (self.table,)
            ).fetchall()
        return dict(rows) or None

    def build_column(self, name: str, kind: IcebergType, *, is_key: bool) -> SinkColumn:  # noqa: ARG002 - part of the protocol
        """Return how a column is written: SQLite has numbers, texts and bytes."""
        if isinstance(kind, DecimalType):
            return SinkColumn(name, f"DECIMAL({kind.precision},{kind.scale})", quote_identifier(name))
        if not kind.is_primitive:
            return SinkColumn(name, "TEXT", f"CAST(to_json({quote_identifier(name)}) AS VARCHAR)")
        type_name = to_duckdb_type(kind)
        read_sql = f"CAST({quote_identifier(name)} AS VARCHAR)" if type_name == "UUID" else quote_identifier(name)
        sql_type = type_name if type_name in ("INTEGER", "BIGINT") else _TYPES.get(type_name, "TEXT")
        return SinkColumn(name, sql_type, read_sql)

    def load(self, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> None:
        """Insert rows into the table."""
        self._insert_rows(self.target, columns, rows)

    def stage(self, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> str:
        """Insert rows into a temporary table."""
        self.execute(f"DROP TABLE IF EXISTS temp.{STAGING_TABLE}")
        definitions = ", ".join(f"{quote_identifier(column.name)} {column.sql_type}" for column in columns)
        self.execute(f"CREATE TEMP TABLE {STAGING_TABLE} ({definitions})")
        self._insert_rows(f"temp.{STAGING_TABLE}", columns, rows)
        return f"temp.{STAGING_TABLE}"

    def upsert(self, columns: Sequence[SinkColumn], key: Sequence[str], staged: str) -> None:
        """Insert the staged rows, or update those with the same key."""
        names = self.join_names([column.name for column in columns])
        others = [column.name for column in columns if column.name not in key]
        update = ", ".join(f"{quote_identifier(name)} = excluded.{quote_identifier(name)}" for name in others)
        conflict_action = f"DO UPDATE SET {update}" if others else "DO NOTHING"
        rows = f"SELECT {names} FROM {staged} WHERE true"
        try:
            self._live_connection.execute(
                f"INSERT INTO {self.target} ({names}) {rows} ON CONFLICT ({self.join_names(key)}) {conflict_action}"
            )
        except sqlite3.Error as error:
            if "ON CONFLICT clause does not match" in str(error):
                raise write_errors.no_key(self.address, self.table, ", ".join(key), self.at) from None
            raise write_errors.RowsRejected(self.address, error, self.at) from None

    @property
    def target(self) -> str:
        """Return the table as SQL; SQLite has no schemas."""
        return quote_identifier(self.table)

    @property
    def _live_connection(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _insert_rows(self, table: str, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> None:
        names = self.join_names([column.name for column in columns])
        sql = f"INSERT INTO {table} ({names}) VALUES ({join_placeholders(columns, '?')})"
        with self._translate_errors():
            for batch in convert_batches(rows, to_sqlite_value):
                self._live_connection.executemany(sql, batch)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "unable to open" in str(error) and not Path(self.address.database).parent.is_dir():
                raise write_errors.refused(self.address, error, self.at) from None
            is_transient = any(phrase in str(error) for phrase in ("locked", "busy", "unable to open"))
            raise (write_errors.unreachable if is_transient else write_errors.RowsRejected)(
                self.address, error, self.at
            ) from None
        except sqlite3.Error as error:
            raise write_errors.RowsRejected(self.address, error, self.at) from None
