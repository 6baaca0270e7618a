"""PostgreSQL: rows come as Arrow through COPY, in a snapshot that several connections can share."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import tuple_row

from runnel.connect.jdbc import driver_errors
from runnel.connect.jdbc.database import ALIAS, Column, Database, Row, T, Unfit, is_duration, split_name
from runnel.connect.jdbc.drivers import adbc_connection
from runnel.connect.jdbc.drivers.postgres_types import Typed, typed
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.options.duration import seconds_of

if TYPE_CHECKING:
    import pyarrow as pa

CONNECT_SECONDS = 10
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SESSION = "-c datestyle=ISO,YMD -c timezone=UTC -c intervalstyle=iso_8601 -c extra_float_digits=3"
_LOGIN = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "role ")
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


class Postgres(Database):
    """A server of PostgreSQL. `snapshot` is one that another connection has exported."""

    snapshot: str | None = None
    _connection: "psycopg.Connection[Any] | None" = None

    def connect(self, *, autocommit: bool = True) -> "psycopg.Connection[Any]":
        """Return a new connection of the ordinary driver, for whoever wants to write."""
        try:
            return psycopg.connect(self._conninfo(), autocommit=autocommit, connect_timeout=CONNECT_SECONDS)
        except psycopg.Error as error:
            text = str(error)
            if "database " in text and "does not exist" in text:
                raise driver_errors.no_database(self.address, self.at) from None
            if any(sign in text for sign in _LOGIN):
                raise driver_errors.refused(self.address, error, self.at) from None
            raise driver_errors.unreachable(self.address, error, self.at) from None

    def begin(self) -> None:
        """Connect, and begin a transaction whose snapshot others can share."""
        self._connection = self.connect()
        with self._asking():
            self._connection.execute(_BEGIN)
            self.version = self._connection.info.server_version

    def close(self) -> None:
        """End the transaction and the connection."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def row(self, sql: str) -> Row:
        """Return the one row of a query."""
        found = self._rows(sql)
        return found[0]

    def tables(self) -> list[str]:
        """Return tables and views; those on the search path without their schema."""
        return [name if is_near else f"{schema}.{name}" for schema, name, is_near in self._rows(_TABLES)]

    def quote(self, name: str) -> str:
        """Return a name in double quotes."""
        return '"' + name.replace('"', '""') + '"'

    def table(self, name: str) -> str:
        """Return a table that the server knows by this name, on its search path or with its schema."""
        found = self._name(name)
        if not self._rows("SELECT to_regclass(%s) IS NOT NULL", found)[0][0]:
            raise driver_errors.no_table(self.address, name, self.tables(), self.at)
        return found

    def columns(self, relation: str) -> tuple[Column, ...]:
        """Return columns with the types that the server describes."""
        with self._asking(is_query=True):
            described = self._cursor().execute(f"SELECT * FROM {relation} LIMIT 0").description or []
        kinds = {oid: (name, kind) for oid, name, kind in self._rows(_TYPES, [each.type_code for each in described])}
        found = []
        for each in described:
            name, kind = kinds.get(each.type_code, ("text", "b"))
            sql = f"{ALIAS}.{self.quote(each.name)}"
            found.append(typed(each.name, sql, Typed(name, kind == "e", each.precision, each.scale)))
        return tuple(found)

    def checksum(self, columns: Sequence[Column]) -> str:
        """Return the sum of a 64-bit hash of each row."""
        row = ", ".join(column.hashed for column in columns)
        hashed = (
            f"hash_record_extended(ROW({row}), 0)"
            if self.version >= 140000
            else f"hashtextextended(ROW({row})::text, 0)"
        )
        return f"sum({hashed})::text"

    def text(self, sql: str) -> str:
        """Return a value as the text that the server writes."""
        return f"({sql})::text"

    def literal(self, value: str, column: Column) -> str:
        """Return a text, cast to the type of a column."""
        quoted = value.replace("'", "''")
        return f"'{quoted}'::{column.kind}"

    def earlier(self, value: str, column: Column, overlap: str) -> str:
        """Return a value less an interval or a number."""
        if is_duration(overlap):
            return f"({self.literal(value, column)} - interval '{seconds_of(overlap)} seconds')"
        return f"({self.literal(value, column)} - {overlap})"

    def batches(self, columns: Sequence[Column], rest: str) -> "Generator[pa.RecordBatch]":
        """Yield rows as Arrow, through a COPY in binary form on a connection of its own."""
        import adbc_driver_manager
        import pyarrow as pa

        select = ", ".join(f"{column.read} AS {self.quote(column.name)}" for column in columns)
        try:
            with adbc_connection.connect(self._conninfo()) as connection, connection.cursor() as cursor:
                cursor.execute(_BEGIN)
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{self._exported()}'")
                cursor.execute(f"SELECT {select} FROM {rest}")
                yield from cursor.fetch_record_batch()
        except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error, columns) from None

    def splits(self, relation: str, origin: Jdbc, columns: Sequence[Column]) -> list[str]:
        """Return ranges of pages of a table, else of its key or watermark."""
        from runnel.connect.jdbc.drivers.postgres_splits import by_place, by_value

        count = origin.partitions
        if origin.table is not None and self.version >= 140000:
            found = by_place(self._rows, self._name(origin.table), count)
            if found:
                return found
        named = [origin.key[0]] if len(origin.key) == 1 else []
        named += [origin.watermark] if origin.watermark else []
        for name in named:
            column = next(one for one in columns if one.name.lower() == name.lower())
            if column.family != "other":
                sql, is_number = f"{ALIAS}.{self.quote(column.name)}", column.family == "number"
                return by_value(self._rows, relation, sql, column.kind, count, is_number=is_number)
        return []

    def another(self) -> "Postgres":
        """Return a connection that shares the snapshot of this one, which has to stay open."""
        made = Postgres(self.address, self.at)
        made.snapshot = self._exported()
        return made

    @contextmanager
    def aside(self, work: Callable[[], T]) -> Iterator[Callable[[], T]]:
        """Let the server work on this connection while rows come through others."""
        self._exported()
        with ThreadPoolExecutor(1, thread_name_prefix="runnel-jdbc") as pool:
            doing = pool.submit(work)
            try:
                yield doing.result
            except BaseException:
                if self._connection is not None:
                    self._connection.cancel_safe(timeout=1)
                raise

    def __enter__(self) -> Self:
        """Connect, unless the snapshot of another one is used."""
        if self.snapshot is None:
            self.begin()
        return self

    def is_unique(self, origin: Jdbc, key: Sequence[str]) -> bool:
        """Tell whether a unique index has no other columns than the key."""
        if origin.table is None:
            return False
        return bool(self._rows(_UNIQUE, list(key), self._name(origin.table))[0][0])

    def is_indexed(self, origin: Jdbc, column: str) -> bool:
        """Tell whether a B-tree over all rows begins with the column."""
        return origin.table is not None and bool(self._rows(_INDEXED, self._name(origin.table), column)[0][0])

    def estimate(self, origin: Jdbc) -> int | None:
        """Return what the statistics of the server say."""
        if origin.table is None:
            return None
        found = self._rows("SELECT reltuples::int8 FROM pg_class WHERE oid = to_regclass(%s)", self._name(origin.table))
        return found[0][0] if found and found[0][0] > 0 else None

    def _name(self, table: str) -> str:
        schema, name = split_name(table)
        return ".".join(self.quote(part) for part in (schema, name) if part)

    def _rows(self, sql: str, *values: object) -> list[Row]:
        with self._asking(is_query=not values):
            return self._cursor().execute(sql, values or None).fetchall()

    def _cursor(self) -> "psycopg.Cursor[Row]":
        assert self._connection is not None
        return self._connection.cursor(row_factory=tuple_row)

    def _exported(self) -> str:
        """Return the name of the snapshot, which lives as long as the connection that exported it."""
        if self.snapshot is None:
            self.snapshot = str(self.row("SELECT pg_export_snapshot()")[0])
        return self.snapshot

    def _conninfo(self) -> str:
        address = self.address
        given: dict[str, Any] = {"host": address.host, "port": address.port, "dbname": address.database or None}
        given |= {"user": address.user, "password": address.password, "connect_timeout": CONNECT_SECONDS}
        given |= {"application_name": "runnel", **dict(address.options)}
        given["options"] = f"{given.get('options', '')} {_SESSION}"  # so that texts are the same whoever is asked
        return make_conninfo(**{name: value for name, value in given.items() if value is not None})

    @contextmanager
    def _asking(self, *, is_query: bool = False) -> Iterator[None]:
        try:
            yield
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            wrong = driver_errors.wrong_query if is_query else driver_errors.failed
            raise wrong(self.address, error, self.at) from None
        except psycopg.OperationalError as error:
            raise driver_errors.unreachable(self.address, error, self.at) from None
        except psycopg.Error as error:
            raise driver_errors.failed(self.address, error, self.at) from None

    def _failure(self, error: BaseException, columns: Sequence[Column]) -> Exception:
        """Return what to raise for an error of ADBC. One that comes with the first rows has no code, only its text."""
        state = getattr(error, "sqlstate", None) or ""
        _, is_said, said = str(error).rpartition("ERROR:")
        cleaned = Exception(said.strip().split("\n\nQuery was")[0] if is_said else str(error))
        if state[:2] in ("08", "57") or not (state or is_said):
            return driver_errors.unreachable(self.address, cleaned, self.at)
        if any(column.safe for column in columns):
            return Unfit(str(cleaned))
        return driver_errors.failed(self.address, cleaned, self.at)
