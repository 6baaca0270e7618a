"""MySQL and MariaDB: one connection with a consistent snapshot, rows as Python's values."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pymysql  # type: ignore[import-untyped]
from pymysql.constants import CR, ER  # type: ignore[import-untyped]
from pymysql.cursors import Cursor, SSCursor  # type: ignore[import-untyped]

from runnel.connect.jdbc import driver_errors
from runnel.connect.jdbc.database import ALIAS, Batch, Column, Database, Row, is_duration, split_name
from runnel.connect.jdbc.drivers.mysql_connection import connect
from runnel.connect.jdbc.drivers.mysql_types import typed
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.options.duration import seconds_of

_BATCH_ROWS = 20_000
_BATCH_BYTES = 64 * 1024 * 1024
_LOGIN = (ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, 1698)
_LOST = (CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, CR.CR_CONN_HOST_ERROR, CR.CR_CONNECTION_ERROR, 0)
_TABLES = (
    "SELECT table_schema, table_name, table_schema = database() FROM information_schema.tables "
    "WHERE table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY 1, 2"
)


class MySql(Database):
    """A server of MySQL or MariaDB."""

    _connection: "pymysql.Connection[Any] | None" = None

    def connect(self, *, autocommit: bool = True) -> "pymysql.Connection[Any]":
        """Return a new connection, for whoever wants to write."""
        try:
            return connect(self.address, autocommit=autocommit)
        except pymysql.Error as error:
            raise self._refusal(error) from None

    def begin(self) -> None:
        """Connect, and begin a consistent snapshot."""
        self._connection = self.connect()
        self._rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._rows("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def close(self) -> None:
        """End the transaction and the connection."""
        if self._connection is not None:
            with suppress(pymysql.Error, OSError):
                self._connection.close()
            self._connection = None

    def row(self, sql: str) -> Row:
        """Return the one row of a query."""
        return self._rows(sql)[0]

    def tables(self) -> list[str]:
        """Return tables and views; those of the database itself without its name."""
        return [name if is_near else f"{schema}.{name}" for schema, name, is_near in self._rows(_TABLES)]

    def quote(self, name: str) -> str:
        """Return a name in backticks."""
        return "`" + name.replace("`", "``") + "`"

    def table(self, name: str) -> str:
        """Return a table that can be asked."""
        quoted = ".".join(self.quote(part) for part in split_name(name) if part)
        try:
            self._ask(f"SELECT 1 FROM {quoted} LIMIT 0")
        except pymysql.Error as error:
            if error.args and error.args[0] in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR, ER.TABLEACCESS_DENIED_ERROR):
                raise driver_errors.no_table(self.address, name, self.tables(), self.at) from None
            raise self._failure(error) from None
        return quoted

    def columns(self, relation: str) -> tuple[Column, ...]:
        """Return columns with the types that the server describes."""
        with self._asking(is_query=True):
            cursor = self._ask(f"SELECT * FROM {relation} LIMIT 0")
            fields = cursor._result.fields if cursor._result else ()
        return tuple(typed(field, f"{ALIAS}.{self.quote(field.name)}") for field in fields)

    def checksum(self, columns: Sequence[Column]) -> str:
        """Return the sum of 60 bits of an MD5 of each row."""
        row = ", ".join(f"coalesce(quote({column.hashed}), 'NULL')" for column in columns)
        digest = f"cast(conv(left(md5(concat_ws(',', {row})), 15), 16, 10) AS unsigned)"
        return f"cast(sum({digest}) AS char)"

    def text(self, sql: str) -> str:
        """Return a value as text."""
        return f"cast({sql} AS char)"

    def literal(self, value: str, column: Column) -> str:
        """Return a number as it is, all else in quotes; a time keeps its fraction."""
        if column.family == "number":
            return value
        assert self._connection is not None
        quoted = str(self._connection.escape(value))
        return (
            f"cast({quoted} AS {'date' if column.type == 'date' else 'datetime(6)'})"
            if column.family == "time"
            else quoted
        )

    def earlier(self, value: str, column: Column, overlap: str) -> str:
        """Return a value less an interval or a number."""
        if is_duration(overlap):
            return f"({self.literal(value, column)} - INTERVAL {seconds_of(overlap)} SECOND)"
        return f"({self.literal(value, column)} - {overlap})"

    def batches(self, columns: Sequence[Column], rest: str) -> "Generator[Batch]":
        """Yield rows as they come from the server."""
        assert self._connection is not None
        select = ", ".join(column.read for column in columns)
        waiting: list[Row] = []
        size = 0
        with self._asking(), self._connection.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT {select} FROM {rest}")
            while row := cursor.fetchone():
                waiting.append(row)
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if len(waiting) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                    yield waiting
                    waiting, size = [], 0
            if waiting:
                yield waiting

    def is_indexed(self, origin: Jdbc, column: str) -> bool:
        """Tell whether an index begins with the column."""
        if origin.table is None:
            return False
        schema, table = split_name(origin.table)
        assert self._connection is not None
        within = str(self._connection.escape(schema)) if schema else "database()"
        name, first = (str(self._connection.escape(one)) for one in (table, column))
        found = self._rows(
            "SELECT count(*) FROM information_schema.statistics WHERE seq_in_index = 1 AND index_type = 'BTREE' "
            f"AND table_schema = {within} AND table_name = {name} AND column_name = {first}"
        )
        return bool(found[0][0])

    def _rows(self, sql: str) -> list[Row]:
        with self._asking():
            return list(self._ask(sql).fetchall())

    def _ask(self, sql: str) -> Cursor:
        assert self._connection is not None
        cursor = self._connection.cursor(Cursor)
        cursor.execute(sql)
        return cursor

    @contextmanager
    def _asking(self, *, is_query: bool = False) -> Iterator[None]:
        try:
            yield
        except pymysql.Error as error:
            raise self._failure(error, is_query=is_query) from None

    def _failure(self, error: pymysql.Error, *, is_query: bool = False) -> Exception:
        said = Exception(str(error.args[-1]) if error.args else "")
        if error.args and error.args[0] in _LOST:
            return driver_errors.unreachable(self.address, said, self.at)
        if is_query or isinstance(error, pymysql.ProgrammingError):
            return driver_errors.wrong_query(self.address, said, self.at)
        return driver_errors.failed(self.address, said, self.at)

    def _refusal(self, error: pymysql.Error) -> Exception:
        code, said = error.args[0] if error.args else 0, Exception(str(error.args[-1]) if error.args else "")
        if code in _LOGIN:
            return driver_errors.refused(self.address, said, self.at)
        if code == ER.BAD_DB_ERROR:
            return driver_errors.no_database(self.address, self.at)
        return driver_errors.unreachable(self.address, said, self.at)
