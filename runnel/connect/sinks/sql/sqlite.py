"""Write to a file of SQLite."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.types import DecimalType, IcebergType

from runnel.connect.sinks.sql import write_errors
from runnel.connect.sinks.sql.row_values import marks, text, tuples
from runnel.connect.sinks.sql.writer import STAGED, Column, Row, Writer
from runnel.lake.scan.duckdb_types import duckdb_type, quoted

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {"BOOLEAN": "INTEGER", "FLOAT": "REAL", "DOUBLE": "REAL", "VARCHAR": "TEXT", "BLOB": "BLOB"}
_BUSY_SECONDS = 30.0


class Sqlite(Writer):
    """A connection to a file of SQLite, which is made where it lacks; its folder must be there."""

    _connection: sqlite3.Connection | None = None

    def connect(self) -> None:
        """Open the file."""
        with self._told():
            self._connection = sqlite3.connect(self.address.database, timeout=_BUSY_SECONDS, isolation_level=None)

    def close(self) -> None:
        """Close it; the transaction that was not committed is undone."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def begin(self) -> None:
        """Begin to write; others read on, but don't write."""
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit."""
        self.execute("COMMIT")

    def execute(self, sql: str) -> None:
        """Do something."""
        with self._told():
            self._open.execute(sql)

    def rows(self, sql: str) -> list[Row]:
        """Return what a query says."""
        with self._told():
            return self._open.execute(sql).fetchall()

    def known(self) -> Mapping[str, str] | None:
        """Return the columns of the table with their types."""
        with self._told():
            found = self._open.execute("SELECT name, type FROM pragma_table_info(?)", (self.table,)).fetchall()
        return dict(found) or None

    def column(self, name: str, kind: IcebergType, *, is_key: bool) -> Column:
        """Return how a column goes out: SQLite knows numbers, texts and bytes."""
        if isinstance(kind, DecimalType):
            return Column(name, f"DECIMAL({kind.precision},{kind.scale})", quoted(name))
        if not kind.is_primitive:
            return Column(name, "TEXT", f"CAST(to_json({quoted(name)}) AS VARCHAR)")
        found = duckdb_type(kind)
        read = f"CAST({quoted(name)} AS VARCHAR)" if found == "UUID" else quoted(name)
        made = found if found in ("INTEGER", "BIGINT") else _TYPES.get(found, "TEXT")
        return Column(name, made, read)

    def load(self, columns: Sequence[Column], rows: "pa.RecordBatchReader") -> None:
        """Insert rows into the table."""
        self._insert(self.target, columns, rows)

    def stage(self, columns: Sequence[Column], rows: "pa.RecordBatchReader") -> None:
        """Insert rows into a temporary table."""
        self.execute(f"DROP TABLE IF EXISTS temp.{STAGED}")
        made = ", ".join(f"{quoted(column.name)} {column.kind}" for column in columns)
        self.execute(f"CREATE TEMP TABLE {STAGED} ({made})")
        self._insert(f"temp.{STAGED}", columns, rows)

    def upsert(self, columns: Sequence[Column], key: Sequence[str]) -> None:
        """Insert the staged rows, or update those with the same key."""
        names = self.names([column.name for column in columns])
        others = [column.name for column in columns if column.name not in key]
        update = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        act = f"DO UPDATE SET {update}" if others else "DO NOTHING"
        rows = f"SELECT {names} FROM temp.{STAGED} WHERE true"
        try:
            self._open.execute(f"INSERT INTO {self.target} ({names}) {rows} ON CONFLICT ({self.names(key)}) {act}")
        except sqlite3.Error as error:
            if "ON CONFLICT clause does not match" in str(error):
                raise write_errors.no_key(self.address, self.table, ", ".join(key), self.at) from None
            raise write_errors.NotAccepted(self.address, error, self.at) from None

    @property
    def target(self) -> str:
        """Return the table as SQL; SQLite has no schemas."""
        return quoted(self.table)

    @property
    def _open(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _insert(self, table: str, columns: Sequence[Column], rows: "pa.RecordBatchReader") -> None:
        names = self.names([column.name for column in columns])
        sql = f"INSERT INTO {table} ({names}) VALUES ({marks(columns, '?')})"
        with self._told():
            for batch in tuples(rows, text):
                self._open.executemany(sql, batch)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "unable to open" in str(error) and not Path(self.address.database).parent.is_dir():
                raise write_errors.refused(self.address, error, self.at) from None
            passing = any(sign in str(error) for sign in ("locked", "busy", "unable to open"))
            raise (write_errors.unreachable if passing else write_errors.NotAccepted)(
                self.address, error, self.at
            ) from None
        except sqlite3.Error as error:
            raise write_errors.NotAccepted(self.address, error, self.at) from None
