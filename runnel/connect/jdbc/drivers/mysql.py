"""Read MySQL and MariaDB: one connection with a consistent snapshot, rows as Python values."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pymysql  # type: ignore[import-untyped]
from pymysql.constants import CR, ER  # type: ignore[import-untyped]
from pymysql.cursors import Cursor, SSCursor  # type: ignore[import-untyped]

from runnel.connect.jdbc import driver_errors
from runnel.connect.jdbc.database import (
    ALIAS,
    Batch,
    DatabaseColumn,
    Row,
    RowEstimate,
    SourceDatabase,
    is_duration,
    split_table_name,
)
from runnel.connect.jdbc.drivers.mysql_connection import connect
from runnel.connect.jdbc.drivers.mysql_types import build_column
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.options.duration import parse_duration

_BATCH_ROWS = 20_000
_VALUE_BYTES = 16  # of a column of a query, whose length is not known
_BATCH_BYTES = 64 * 1024 * 1024
_LOGIN_ERRORS = (ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, 1698)
_CONNECTION_ERRORS = (CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_CONN_HOST_ERROR, CR.CR_CONNECTION_ERROR, 0)
_TABLES = (
    "SELECT table_schema, table_name, table_schema = database() FROM information_schema.tables "
    "WHERE table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1, 2"
)


class MySqlDatabase(SourceDatabase):
    """A MySQL or MariaDB server."""

    _connection: "pymysql.Connection[Any] | None" = None

    def connect(self, *, autocommit: bool = True) -> "pymysql.Connection[Any]":
        """Return a new connection, which may also write."""
        try:
            return connect(self.address, autocommit=autocommit)
        except pymysql.Error as error:
            raise self._connection_error(error) from None

    def begin(self) -> None:
        """Connect, and begin a consistent snapshot."""
        self._connection = self.connect()
        self._fetch_rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._fetch_rows("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def close(self) -> None:
        """End the transaction and the connection."""
        if self._connection is not None:
            with suppress(pymysql.Error, OSError):
                self._connection.close()
            self._connection = None

    def fetch_row(self, sql: str) -> Row:
        """Return the one row of a query."""
        return self._fetch_rows(sql)[0]

    def list_tables(self) -> list[str]:
        """Return tables and views; those of the current database without its name."""
        return [
            name if is_default_schema else f"{schema}.{name}"
            for schema, name, is_default_schema in self._fetch_rows(_TABLES)
        ]

    def quote(self, name: str) -> str:
        """Return a name in backticks."""
        return "`" + name.replace("`", "``") + "`"

    def table_sql(self, name: str) -> str:
        """Return the quoted name of a table that can be queried."""
        quoted = ".".join(self.quote(part) for part in split_table_name(name) if part)
        try:
            self._execute(f"SELECT 1 FROM {quoted} LIMIT 0")
        except pymysql.Error as error:
            if error.args and error.args[0] in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR, ER.TABLEACCESS_DENIED_ERROR):
                raise driver_errors.no_table(self.address, name, self.list_tables(), self.at) from None
            raise self._query_error(error) from None
        return quoted

    def describe_columns(self, relation: str) -> tuple[DatabaseColumn, ...]:
        """Return columns with the types that the server describes."""
        with self._translate_errors(is_query=True):
            cursor = self._execute(f"SELECT * FROM {relation} LIMIT 0")
            fields = cursor._result.fields if cursor._result else ()
        return tuple(build_column(field, f"{ALIAS}.{self.quote(field.name)}") for field in fields)

    def checksum_sql(self, columns: Sequence[DatabaseColumn]) -> str:
        """Return the sum of 60 bits of an MD5 of each row."""
        row = ", ".join(f"coalesce(quote({column.hashed}), 'NULL')" for column in columns)
        digest = f"cast(conv(left(md5(concat_ws(',', {row})), 15), 16, 10) AS unsigned)"
        return f"cast(sum({digest}) AS char)"

    def text_sql(self, sql: str) -> str:
        """Return a value as text."""
        return f"cast({sql} AS char)"

    def literal_sql(self, value: str, column: DatabaseColumn) -> str:
        """Return a number as it is, everything else in quotes; a time keeps its fraction."""
        if column.family == "number":
            return value
        assert self._connection is not None
        quoted = str(self._connection.escape(value))
        return (
            f"cast({quoted} AS {'date' if column.arrow_type == 'date' else 'datetime(6)'})"
            if column.family == "time"
            else quoted
        )

    def earlier_sql(self, value: str, column: DatabaseColumn, overlap: str) -> str:
        """Return a value less an interval or a number."""
        if is_duration(overlap):
            return f"({self.literal_sql(value, column)} - INTERVAL {parse_duration(overlap)} SECOND)"
        return f"({self.literal_sql(value, column)} - {overlap})"

    def batches(self, columns: Sequence[DatabaseColumn], from_clause: str) -> "Generator[Batch]":
        """Yield rows as they come from the server."""
        assert self._connection is not None
        select = ", ".join(column.read for column in columns)
        batch: list[Row] = []
        size = 0
        with self._translate_errors(), self._connection.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT {select} FROM {from_clause}")
            while row := cursor.fetchone():
                batch.append(row)
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
            if batch:
                yield batch

    def is_indexed(self, origin: Jdbc, column: str) -> bool:
        """Tell whether an index begins with the column."""
        if origin.table is None:
            return False
        assert self._connection is not None
        rows = self._fetch_rows(
            "SELECT count(*) FROM information_schema.statistics WHERE seq_in_index = 1 AND index_type = 'BTREE' "
            f"AND {self._table_condition(origin.table)} AND column_name = {self._connection.escape(column)}"
        )
        return bool(rows[0][0])

    def estimate_size(self, origin: Jdbc, relation: str, columns: Sequence[DatabaseColumn]) -> RowEstimate:
        """Return the size of a table by the server's statistics; the rows of a query that the optimizer expects."""
        if origin.table is not None:
            rows = self._fetch_rows(
                f"SELECT table_rows, data_length FROM information_schema.tables "
                f"WHERE {self._table_condition(origin.table)}"
            )
            if rows and rows[0][0]:
                count, size = int(rows[0][0]), int(rows[0][1] or 0)
                return RowEstimate(count, max(size // count, 1))
        with self._translate_errors():
            cursor = self._execute(f"EXPLAIN SELECT * FROM {relation}")
        position = [name for name, *_ in cursor.description].index("rows")
        expected_rows = [int(row[position] or 0) for row in cursor.fetchall()]
        return RowEstimate(max(expected_rows, default=0), _VALUE_BYTES * len(columns))

    def _table_condition(self, table: str) -> str:
        """Return the SQL of whether a row of the information schema is about a table."""
        assert self._connection is not None
        schema, name = split_table_name(table)
        schema_sql = str(self._connection.escape(schema)) if schema else "database()"
        return f"table_schema = {schema_sql} AND table_name = {self._connection.escape(name)}"

    def _fetch_rows(self, sql: str) -> list[Row]:
        with self._translate_errors():
            return list(self._execute(sql).fetchall())

    def _execute(self, sql: str) -> Cursor:
        assert self._connection is not None
        cursor = self._connection.cursor(Cursor)
        cursor.execute(sql)
        return cursor

    @contextmanager
    def _translate_errors(self, *, is_query: bool = False) -> Iterator[None]:
        try:
            yield
        except pymysql.Error as error:
            raise self._query_error(error, is_query=is_query) from None

    def _query_error(self, error: pymysql.Error, *, is_query: bool = False) -> Exception:
        driver_error = Exception(str(error.args[-1]) if error.args else "")
        if error.args and error.args[0] in _CONNECTION_ERRORS:
            return driver_errors.unreachable(self.address, driver_error, self.at)
        if is_query or isinstance(error, pymysql.ProgrammingError):
            return driver_errors.wrong_query(self.address, driver_error, self.at)
        return driver_errors.failed(self.address, driver_error, self.at)

    def _connection_error(self, error: pymysql.Error) -> Exception:
        code, driver_error = error.args[0] if error.args else 0, Exception(str(error.args[-1]) if error.args else "")
        if code in _LOGIN_ERRORS:
            return driver_errors.login_refused(self.address, driver_error, self.at)
        if code == ER.BAD_DB_ERROR:
            return driver_errors.no_database(self.address, self.at)
        return driver_errors.unreachable(self.address, driver_error, self.at)
