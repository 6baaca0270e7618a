"""Write to PostgreSQL: COPY in its binary form, straight from Arrow."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from pyiceberg.types import DecimalType, IcebergType

from runnel.connect.jdbc.drivers import adbc_connection
from runnel.connect.sinks.sql import write_errors
from runnel.connect.sinks.sql.writer import STAGED, Column, Row, Writer
from runnel.errors import RunnelError
from runnel.lake.scan.duckdb_types import duckdb_type, literal, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from adbc_driver_manager import dbapi

_TYPES = {
    "BOOLEAN": ("boolean", ("bool",)),
    "INTEGER": ("integer", ("int4",)),
    "BIGINT": ("bigint", ("int8",)),
    "FLOAT": ("real", ("float4",)),
    "DOUBLE": ("double precision", ("float8",)),
    "DATE": ("date", ("date",)),
    "TIME": ("time", ("time",)),
    "TIMESTAMP": ("timestamp", ("timestamp",)),
    "TIMESTAMPTZ": ("timestamptz", ("timestamptz",)),
    "VARCHAR": ("text", ("text", "varchar")),
    "BLOB": ("bytea", ("bytea",)),
}
_SAME = dict(_TYPES.values())  # what can be copied without a cast
_LOCK_SECONDS = 60
_NO_UNIQUE_INDEX = "42P10"
_PASSING = ("08", "40", "53", "57", "55P03")


class Postgres(Writer):
    """A connection to PostgreSQL."""

    _connection: "dbapi.Connection | None" = None

    def connect(self) -> None:
        """Connect; nobody waits for a lock for longer than a minute."""
        with self._told():
            self._connection = adbc_connection.connect(self._uri())
        self.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
        self.execute("SET TimeZone = 'UTC'")

    def close(self) -> None:
        """Close it; the transaction that was not committed is undone."""
        from contextlib import suppress

        if self._connection is not None:
            with suppress(Exception):  # it may be broken already
                self._connection.close()
            self._connection = None

    def begin(self) -> None:
        """Begin."""
        self.execute("BEGIN")

    def commit(self) -> None:
        """Commit."""
        self.execute("COMMIT")

    def execute(self, sql: str) -> None:
        """Do something."""
        with self._told(), self._cursor() as cursor:
            cursor.execute(sql)

    def rows(self, sql: str) -> list[Row]:
        """Return what a query says."""
        with self._told(), self._cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def known(self) -> Mapping[str, str] | None:
        """Return the columns of the table with their types."""
        found = self.rows(
            "SELECT a.attname::text, t.typname::text, format_type(a.atttypid, a.atttypmod)::text FROM pg_attribute a"
            f" JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = to_regclass({literal(self.target)})"
            " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        )
        self._binary = {name: kind for name, kind, _ in found}
        return {name: kind for name, _, kind in found} or None

    def column(self, name: str, kind: IcebergType, *, is_key: bool) -> Column:
        """Return how a column goes out: what PostgreSQL has no type for as JSON, a uuid as its text."""
        if isinstance(kind, DecimalType):
            return Column(name, f"numeric({kind.precision},{kind.scale})", quoted(name))
        if not kind.is_primitive:
            return Column(name, "jsonb", f"CAST(to_json({quoted(name)}) AS VARCHAR)")
        text = duckdb_type(kind)
        if text == "UUID":
            return Column(name, "uuid", f"CAST({quoted(name)} AS VARCHAR)")
        return Column(name, _TYPES[text][0], quoted(name))

    def load(self, columns: Sequence[Column], rows: "pa.RecordBatchReader") -> None:
        """Copy rows into the table, by way of a temporary one where its types are others."""
        if all(self._binary.get(column.name) in _binary_of(column) for column in columns):
            with self._told(), self._cursor() as cursor:
                cursor.adbc_ingest(self.table, rows, mode="append", db_schema_name=self.schema)
            return
        self.stage(columns, rows)
        self.execute(f"INSERT INTO {self.target} ({self._names(columns)}) {self._staged(columns)}")

    def stage(self, columns: Sequence[Column], rows: "pa.RecordBatchReader") -> None:
        """Copy rows into a temporary table."""
        self.execute(f"DROP TABLE IF EXISTS pg_temp.{STAGED}")
        with self._told(), self._cursor() as cursor:
            cursor.adbc_ingest(STAGED, rows, mode="create", temporary=True)
        self.execute(f"ANALYZE pg_temp.{STAGED}")

    def upsert(self, columns: Sequence[Column], key: Sequence[str]) -> None:
        """Insert the staged rows, or update those with the same key."""
        others = [column.name for column in columns if column.name not in key]
        update = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in others)
        act = f"DO UPDATE SET {update}" if others else "DO NOTHING"
        try:
            self.execute(
                f"INSERT INTO {self.target} ({self._names(columns)}) {self._staged(columns)}"
                f" ON CONFLICT ({self.names(key)}) {act}"
            )
        except write_errors.NotAccepted as error:
            if error.state == _NO_UNIQUE_INDEX:
                raise write_errors.no_key(self.address, self.table, ", ".join(key), self.at) from None
            raise

    def delete(self, key: Sequence[str]) -> None:
        """Remove the rows whose keys are staged, compared in the types of the table."""
        kinds = self.known() or {}
        same = [f"CAST({STAGED}.{quoted(one)} AS {kinds[one]}) = {self.target}.{quoted(one)}" for one in key]
        self.execute(f"DELETE FROM {self.target} USING pg_temp.{STAGED} WHERE {' AND '.join(same)}")

    def clear(self) -> None:
        """Empty the table, or where that is not allowed, because others refer to it, delete its rows."""
        referred = f"SELECT 1 FROM pg_constraint WHERE confrelid = to_regclass({literal(self.target)}) LIMIT 1"
        self.execute(f"DELETE FROM {self.target}" if self.rows(referred) else f"TRUNCATE {self.target}")

    def _names(self, columns: Sequence[Column]) -> str:
        return self.names([column.name for column in columns])

    def _staged(self, columns: Sequence[Column]) -> str:
        """Return a SELECT of the staged rows, in the types of the table."""
        kinds = self.known() or {}
        shown = [f"CAST({quoted(one.name)} AS {kinds[one.name]})" for one in columns]
        return f"SELECT {', '.join(shown)} FROM pg_temp.{STAGED}"

    def _cursor(self) -> "dbapi.Cursor":
        assert self._connection is not None
        return self._connection.cursor()

    def _uri(self) -> str:
        address = self.address
        who = quote(address.user or "", safe="")
        who += f":{quote(address.password, safe='')}" if address.password else ""
        host = f"[{address.host}]" if ":" in address.host else address.host
        options = urlencode({"connect_timeout": "10", "application_name": "runnel", **dict(address.options)})
        at = "@" if who else ""
        return f"postgresql://{who}{at}{host}:{address.port}/{quote(address.database, safe='')}?{options}"

    @contextmanager
    def _told(self) -> Iterator[None]:
        import adbc_driver_manager

        try:
            yield
        except adbc_driver_manager.Error as error:
            raise self._meant(error) from None

    def _meant(self, error: Any) -> RunnelError:
        state = error.sqlstate or ""
        text = str(error)
        if "Failed to connect" in text or (state.startswith(_PASSING) and state != "08P01"):
            refuses = any(sign in text for sign in ("authentication", "no pg_hba", "does not exist", "no password"))
            return (write_errors.refused if refuses else write_errors.unreachable)(self.address, error, self.at)
        if state.startswith("28") or state == "42501":
            return write_errors.refused(self.address, error, self.at)
        if not state and any(sign in text for sign in ("no connection", "server closed", "could not receive")):
            return write_errors.unreachable(self.address, error, self.at)
        return write_errors.NotAccepted(self.address, error, self.at, state)


def _binary_of(column: Column) -> tuple[str, ...]:
    """Return the types whose binary form is that of a column's values; none for what needs a cast."""
    return ("numeric",) if column.kind.startswith("numeric") else _SAME.get(column.kind, ())
