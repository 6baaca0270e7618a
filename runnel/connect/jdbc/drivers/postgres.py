"""Read PostgreSQL: rows as Arrow through COPY, in a snapshot that several connections can share."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import tuple_row

from runnel.connect.jdbc import driver_errors
from runnel.connect.jdbc.database import (
    ALIAS,
    DatabaseColumn,
    FastReadFailed,
    Row,
    RowEstimate,
    SourceDatabase,
    T,
    is_duration,
    split_table_name,
)
from runnel.connect.jdbc.drivers import adbc_connection
from runnel.connect.jdbc.drivers.postgres_types import PostgresType, build_column
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.options.duration import parse_duration

if TYPE_CHECKING:
    import pyarrow as pa

CONNECT_SECONDS = 10
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SESSION = "-c datestyle=ISO,YMD -c timezone=UTC -c intervalstyle=iso_8601 -c extra_float_digits=3"
_LOGIN_MESSAGES = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "role ")
_TYPES = "SELECT oid, typname, typtype FROM pg_type WHERE oid = ANY(%s)"
_TABLES = (
    "SELECT n.nspname, c.relname, n.nspname = ANY(current_schemas(false)) FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') "
    "AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1, 2"
)
_UNIQUE = (
    "SELECT bool_or(i.indpred IS NULL AND i.indexprs IS NULL AND (SELECT array_agg(a.attname::text ORDER BY a.attname) "
    "FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey::int2[])) <@ %s::text[]) "
    "FROM pg_index i WHERE i.indisunique AND i.indisvalid AND i.indrelid = to_regclass(%s)"
)

_INDEXED = (
    "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam "
    "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
    "WHERE i.indrelid = to_regclass(%s) AND a.attname = %s AND i.indisvalid AND i.indpred IS NULL "
    "AND m.amname = 'btree'"
)


class PostgresDatabase(SourceDatabase):
    """A PostgreSQL server. `snapshot` is the name of an exported snapshot."""

    snapshot: str | None = None
    _connection: "psycopg.Connection[Any] | None" = None

    def connect(self, *, autocommit: bool = True) -> "psycopg.Connection[Any]":
        """Return a new psycopg connection, which may also write."""
        try:
            return psycopg.connect(self._build_conninfo(), autocommit=autocommit, connect_timeout=CONNECT_SECONDS)
        except psycopg.Error as error:
            text = str(error)
            if "database " in text and "does not exist" in text:
                raise driver_errors.no_database(self.address, self.at) from None
            if any(phrase in text for phrase in _LOGIN_MESSAGES):
                raise driver_errors.login_refused(self.address, error, self.at) from None
            raise driver_errors.unreachable(self.address, error, self.at) from None

    def begin(self) -> None:
        """Connect, and begin a transaction whose snapshot others can share."""
        self._connection = self.connect()
        with self._translate_errors():
            self._connection.execute(_BEGIN)
            self.version = self._connection.info.server_version

    def close(self) -> None:
        """End the transaction and the connection."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def fetch_row(self, sql: str) -> Row:
        """Return the one row of a query."""
        rows = self._fetch_rows(sql)
        return rows[0]

    def list_tables(self) -> list[str]:
        """Return tables and views; those on the search path without their schema."""
        return [
            name if is_on_search_path else f"{schema}.{name}"
            for schema, name, is_on_search_path in self._fetch_rows(_TABLES)
        ]

    def quote(self, name: str) -> str:
        """Return a name in double quotes."""
        return '"' + name.replace('"', '""') + '"'

    def table_sql(self, name: str) -> str:
        """Return the quoted name of an existing table, on the search path or with its schema."""
        quoted_name = self._quote_table(name)
        if not self._fetch_rows("SELECT to_regclass(%s) IS NOT NULL", quoted_name)[0][0]:
            raise driver_errors.no_table(self.address, name, self.list_tables(), self.at)
        return quoted_name

    def describe_columns(self, relation: str) -> tuple[DatabaseColumn, ...]:
        """Return columns with the types that the server describes."""
        with self._translate_errors(is_query=True):
            fields = self._cursor().execute(f"SELECT * FROM {relation} LIMIT 0").description or []
        kinds = {
            oid: (name, kind) for oid, name, kind in self._fetch_rows(_TYPES, [field.type_code for field in fields])
        }
        columns = []
        for field in fields:
            name, kind = kinds.get(field.type_code, ("text", "b"))
            sql = f"{ALIAS}.{self.quote(field.name)}"
            columns.append(build_column(field.name, sql, PostgresType(name, kind == "e", field.precision, field.scale)))
        return tuple(columns)

    def checksum_sql(self, columns: Sequence[DatabaseColumn]) -> str:
        """Return the sum of a 64-bit hash of each row."""
        row = ", ".join(column.hashed for column in columns)
        hashed = (
            f"hash_record_extended(ROW({row}), 0)"
            if self.version >= 140000
            else f"hashtextextended(ROW({row})::text, 0)"
        )
        return f"sum({hashed})::text"

    def text_sql(self, sql: str) -> str:
        """Return the SQL of a value as the server's own text form."""
        return f"({sql})::text"

    def literal_sql(self, value: str, column: DatabaseColumn) -> str:
        """Return a quoted text, cast to the type of a column."""
        quoted = value.replace("'", "''")
        return f"'{quoted}'::{column.database_type}"

    def earlier_sql(self, value: str, column: DatabaseColumn, overlap: str) -> str:
        """Return a value less an interval or a number."""
        if is_duration(overlap):
            return f"({self.literal_sql(value, column)} - interval '{parse_duration(overlap)} seconds')"
        return f"({self.literal_sql(value, column)} - {overlap})"

    def batches(self, columns: Sequence[DatabaseColumn], from_clause: str) -> "Generator[pa.RecordBatch]":
        """Yield rows as Arrow, through a COPY in binary form on a connection of its own."""
        import adbc_driver_manager
        import pyarrow as pa

        select = ", ".join(f"{column.read} AS {self.quote(column.name)}" for column in columns)
        try:
            with adbc_connection.connect(self._build_conninfo()) as connection, connection.cursor() as cursor:
                cursor.execute(_BEGIN)
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{self._export_snapshot()}'")
                cursor.execute(f"SELECT {select} FROM {from_clause}")
                yield from cursor.fetch_record_batch()
        except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
            raise self._adbc_error(error, columns) from None

    def split_conditions(self, relation: str, origin: Jdbc, columns: Sequence[DatabaseColumn]) -> list[str]:
        """Return ranges of a table's pages, or ranges of its key or watermark if it has no pages."""
        from runnel.connect.jdbc.drivers.postgres_splits import split_by_pages, split_by_value

        count = origin.partitions
        if origin.table is not None and self.version >= 140000:
            conditions = split_by_pages(self._fetch_rows, self._quote_table(origin.table), count)
            if conditions:
                return conditions
        column_names = [origin.key[0]] if len(origin.key) == 1 else []
        column_names += [origin.watermark] if origin.watermark else []
        for name in column_names:
            column = next(candidate for candidate in columns if candidate.name.lower() == name.lower())
            if column.family != "other":
                sql, is_number = f"{ALIAS}.{self.quote(column.name)}", column.family == "number"
                return split_by_value(self._fetch_rows, relation, sql, column.database_type, count, is_number=is_number)
        return []

    def share_snapshot(self) -> "PostgresDatabase":
        """Return a connection that shares the snapshot of this one, which must stay open."""
        sibling = PostgresDatabase(self.address, self.at)
        sibling.snapshot = self._export_snapshot()
        return sibling

    def hold_snapshot(self) -> str:
        """Return the name of the snapshot; the server must not end this connection while it waits for units."""
        self._cursor().execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        return self._export_snapshot()

    @contextmanager
    def run_alongside(self, work: Callable[[], T]) -> Iterator[Callable[[], T]]:
        """Run a query on this connection in a thread while rows are read through others."""
        self._export_snapshot()
        with ThreadPoolExecutor(1, thread_name_prefix="runnel-jdbc") as pool:
            future = pool.submit(work)
            try:
                yield future.result
            except BaseException:
                if self._connection is not None:
                    self._connection.cancel_safe(timeout=1)
                raise

    def __enter__(self) -> Self:
        """Connect, unless the snapshot of another connection is used."""
        if self.snapshot is None:
            self.begin()
        return self

    def is_unique(self, origin: Jdbc, key: Sequence[str]) -> bool:
        """Tell whether a unique index has no other columns than the key."""
        if origin.table is None:
            return False
        return bool(self._fetch_rows(_UNIQUE, list(key), self._quote_table(origin.table))[0][0])

    def is_indexed(self, origin: Jdbc, column: str) -> bool:
        """Tell whether a B-tree index over all rows begins with the column."""
        return origin.table is not None and bool(
            self._fetch_rows(_INDEXED, self._quote_table(origin.table), column)[0][0]
        )

    def estimate_rows(self, origin: Jdbc) -> int | None:
        """Return the row count of the server's statistics."""
        if origin.table is None:
            return None
        rows = self._fetch_rows(
            "SELECT reltuples::int8 FROM pg_class WHERE oid = to_regclass(%s)", self._quote_table(origin.table)
        )
        return rows[0][0] if rows and rows[0][0] > 0 else None

    def estimate_size(self, origin: Jdbc, relation: str, columns: Sequence[DatabaseColumn]) -> RowEstimate:  # noqa: ARG002 - part of the interface
        """Return what the planner expects."""
        select = ", ".join(column.read for column in columns)
        [explanation] = self.fetch_row(f"EXPLAIN (FORMAT JSON) SELECT {select} FROM {relation}")
        plan = explanation[0]["Plan"]
        return RowEstimate(int(plan["Plan Rows"]), int(plan["Plan Width"]))

    def _quote_table(self, table: str) -> str:
        schema, name = split_table_name(table)
        return ".".join(self.quote(part) for part in (schema, name) if part)

    def _fetch_rows(self, sql: str, *values: object) -> list[Row]:
        with self._translate_errors(is_query=not values):
            return self._cursor().execute(sql, values or None).fetchall()

    def _cursor(self) -> "psycopg.Cursor[Row]":
        assert self._connection is not None
        return self._connection.cursor(row_factory=tuple_row)

    def _export_snapshot(self) -> str:
        """Return the name of the snapshot, which lives as long as the connection that exported it."""
        if self.snapshot is None:
            self.snapshot = str(self.fetch_row("SELECT pg_export_snapshot()")[0])
        return self.snapshot

    def _build_conninfo(self) -> str:
        address = self.address
        parameters: dict[str, Any] = {"host": address.host, "port": address.port, "dbname": address.database or None}
        parameters |= {"user": address.user, "password": address.password, "connect_timeout": CONNECT_SECONDS}
        parameters |= {"application_name": "runnel", **dict(address.options)}
        parameters["options"] = (
            f"{parameters.get('options', '')} {_SESSION}"  # so that every server formats values alike
        )
        return make_conninfo(**{name: value for name, value in parameters.items() if value is not None})

    @contextmanager
    def _translate_errors(self, *, is_query: bool = False) -> Iterator[None]:
        try:
            yield
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            build_error = driver_errors.wrong_query if is_query else driver_errors.failed
            raise build_error(self.address, error, self.at) from None
        except psycopg.OperationalError as error:
            raise driver_errors.unreachable(self.address, error, self.at) from None
        except psycopg.Error as error:
            raise driver_errors.failed(self.address, error, self.at) from None

    def _adbc_error(self, error: BaseException, columns: Sequence[DatabaseColumn]) -> Exception:
        """Return the exception for an ADBC error. An error of the first rows has no SQLSTATE, only a text."""
        state = getattr(error, "sqlstate", None) or ""
        _, has_message, message = str(error).rpartition("ERROR:")
        driver_error = Exception(message.strip().split("\n\nQuery was")[0] if has_message else str(error))
        if state[:2] in ("08", "57") or not (state or has_message):
            return driver_errors.unreachable(self.address, driver_error, self.at)
        if any(column.safe for column in columns):
            return FastReadFailed(str(driver_error))
        return driver_errors.failed(self.address, driver_error, self.at)
