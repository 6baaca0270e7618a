"""Write to PostgreSQL with binary COPY, directly from Arrow."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from pyiceberg.types import DecimalType, IcebergType

from runnel.connect.jdbc.drivers import adbc_connection
from runnel.connect.sinks.sql import write_errors
from runnel.connect.sinks.sql.writer import STAGING_TABLE, Row, SinkColumn, StagingWriter
from runnel.errors import RunnelError
from runnel.lake.scan.duckdb_types import quote_identifier, quote_literal, to_duckdb_type

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
_BINARY_TYPES = dict(_TYPES.values())  # types that can be copied without a cast
_LOCK_SECONDS = 60
_NO_UNIQUE_INDEX = "42P10"
_TRANSIENT_STATES = ("08", "40", "53", "57", "55P03")


class PostgresWriter(StagingWriter):
    """A connection to PostgreSQL."""

    _connection: "dbapi.Connection | None" = None

    def connect(self) -> None:
        """Connect; no statement waits for a lock for longer than a minute."""
        with self._translate_errors():
            self._connection = adbc_connection.connect(self._build_uri())
        self.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
        self.execute("SET TimeZone = 'UTC'")

    def close(self) -> None:
        """Close the connection; an uncommitted transaction is rolled back."""
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
        """Run a statement."""
        with self._translate_errors(), self._cursor() as cursor:
            cursor.execute(sql)

    def fetch_rows(self, sql: str) -> list[Row]:
        """Return the rows of a query."""
        with self._translate_errors(), self._cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def read_columns(self) -> Mapping[str, str] | None:
        """Return the columns of the table with their types."""
        rows = self.fetch_rows(
            "SELECT a.attname::text, t.typname::text, format_type(a.atttypid, a.atttypmod)::text FROM pg_attribute a"
            f" JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = to_regclass({quote_literal(self.target)})"
            " AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        )
        self._binary_types = {name: kind for name, kind, _ in rows}
        return {name: kind for name, _, kind in rows} or None

    def build_column(self, name: str, kind: IcebergType, *, is_key: bool) -> SinkColumn:  # noqa: ARG002 - part of the protocol
        """Return how a column is written: nested types as JSON, a uuid as text."""
        if isinstance(kind, DecimalType):
            return SinkColumn(name, f"numeric({kind.precision},{kind.scale})", quote_identifier(name))
        if not kind.is_primitive:
            return SinkColumn(name, "jsonb", f"CAST(to_json({quote_identifier(name)}) AS VARCHAR)")
        type_name = to_duckdb_type(kind)
        if type_name == "UUID":
            return SinkColumn(name, "uuid", f"CAST({quote_identifier(name)} AS VARCHAR)")
        return SinkColumn(name, _TYPES[type_name][0], quote_identifier(name))

    def load(self, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> None:
        """Copy rows into the table, through a temporary table if its column types differ."""
        if all(self._binary_types.get(column.name) in _binary_types_of(column) for column in columns):
            with self._translate_errors(), self._cursor() as cursor:
                cursor.adbc_ingest(self.table, rows, mode="append", db_schema_name=self.schema)
            return
        self.load_staged(columns, self.stage(columns, rows))

    def load_staged(self, columns: Sequence[SinkColumn], staged: str) -> None:
        """Add staged rows to the table, in the types of the table."""
        self.execute(f"INSERT INTO {self.target} ({self._column_list(columns)}) {self._select_cast(columns, staged)}")

    def stage(self, _columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> str:
        """Copy rows into a temporary table."""
        self.execute(f"DROP TABLE IF EXISTS pg_temp.{STAGING_TABLE}")
        with self._translate_errors(), self._cursor() as cursor:
            cursor.adbc_ingest(STAGING_TABLE, rows, mode="create", temporary=True)
        self.execute(f"ANALYZE pg_temp.{STAGING_TABLE}")
        return f"pg_temp.{STAGING_TABLE}"

    def create_staging_table(
        self,
        name: str,
        columns: Sequence[SinkColumn],  # noqa: ARG002 - the driver derives the types from the rows
        rows: "pa.RecordBatchReader",
    ) -> None:
        """Create a staging table."""
        with self._translate_errors(), self._cursor() as cursor:
            cursor.adbc_ingest(name, rows, mode="create", db_schema_name=self.schema)

    def load_staging_table(
        self,
        name: str,
        columns: Sequence[SinkColumn],  # noqa: ARG002 - the rows have their names
        rows: "pa.RecordBatchReader",
    ) -> None:
        """Copy rows into a staging table."""
        with self._translate_errors(), self._cursor() as cursor:
            cursor.adbc_ingest(name, rows, mode="append", db_schema_name=self.schema)

    def list_tables(self, prefix: str) -> list[str]:
        """Return the tables of the schema whose names begin with a prefix."""
        schema = quote_literal(self.schema) if self.schema else "current_schema()"
        rows = self.fetch_rows(
            f"SELECT tablename::text FROM pg_tables WHERE schemaname = {schema} AND starts_with(tablename::text, "
            f"{quote_literal(prefix)})"
        )
        return [str(name) for (name,) in rows]

    def select_staged(self, name: str, attempts: Sequence[int]) -> str:
        """Return the rows of some attempts; PostgreSQL plans a better query if it knows the table."""
        self.execute(f"ANALYZE {self.qualify(name)}")
        return super().select_staged(name, attempts)

    def upsert(self, columns: Sequence[SinkColumn], key: Sequence[str], staged: str) -> None:
        """Insert the staged rows, or update those with the same key."""
        others = [column.name for column in columns if column.name not in key]
        update = ", ".join(f"{quote_identifier(name)} = EXCLUDED.{quote_identifier(name)}" for name in others)
        conflict_action = f"DO UPDATE SET {update}" if others else "DO NOTHING"
        try:
            self.execute(
                f"INSERT INTO {self.target} ({self._column_list(columns)}) {self._select_cast(columns, staged)}"
                f" ON CONFLICT ({self.join_names(key)}) {conflict_action}"
            )
        except write_errors.RowsRejected as error:
            if error.sql_state == _NO_UNIQUE_INDEX:
                raise write_errors.no_key(self.address, self.table, ", ".join(key), self.at) from None
            raise

    def delete(self, key: Sequence[str], staged: str) -> None:
        """Remove the rows whose keys are staged, compared in the types of the table."""
        kinds = self.read_columns() or {}
        key_conditions = [
            f"CAST({STAGING_TABLE}.{quote_identifier(name)} AS {kinds[name]}) = {self.target}.{quote_identifier(name)}"
            for name in key
        ]
        self.execute(f"DELETE FROM {self.target} USING {staged} WHERE {' AND '.join(key_conditions)}")

    def clear(self) -> None:
        """Truncate the table, or delete its rows if foreign keys of other tables forbid that."""
        references_sql = (
            f"SELECT 1 FROM pg_constraint WHERE confrelid = to_regclass({quote_literal(self.target)}) LIMIT 1"
        )
        self.execute(f"DELETE FROM {self.target}" if self.fetch_rows(references_sql) else f"TRUNCATE {self.target}")

    def _column_list(self, columns: Sequence[SinkColumn]) -> str:
        return self.join_names([column.name for column in columns])

    def _select_cast(self, columns: Sequence[SinkColumn], staged: str) -> str:
        """Return a SELECT of staged rows, in the types of the table."""
        kinds = self.read_columns() or {}
        casts = [f"CAST({quote_identifier(column.name)} AS {kinds[column.name]})" for column in columns]
        return f"SELECT {', '.join(casts)} FROM {staged}"

    def _cursor(self) -> "dbapi.Cursor":
        assert self._connection is not None
        return self._connection.cursor()

    def _build_uri(self) -> str:
        address = self.address
        credentials = quote(address.user or "", safe="")
        credentials += f":{quote(address.password, safe='')}" if address.password else ""
        host = f"[{address.host}]" if ":" in address.host else address.host
        options = urlencode({"connect_timeout": "10", "application_name": "runnel", **dict(address.options)})
        at = "@" if credentials else ""
        return f"postgresql://{credentials}{at}{host}:{address.port}/{quote(address.database, safe='')}?{options}"

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        import adbc_driver_manager

        try:
            yield
        except adbc_driver_manager.Error as error:
            raise self._build_error(error) from None

    def _build_error(self, error: Any) -> RunnelError:
        from adbc_driver_manager import AdbcStatusCode

        state = error.sqlstate or ""
        text = str(error)
        if "Failed to connect" in text or (state.startswith(_TRANSIENT_STATES) and state != "08P01"):
            is_refused = any(
                phrase in text for phrase in ("authentication", "no pg_hba", "does not exist", "no password")
            )
            return (write_errors.refused if is_refused else write_errors.unreachable)(self.address, error, self.at)
        if state.startswith("28") or state == "42501" or error.status_code == AdbcStatusCode.UNAUTHORIZED:
            return write_errors.refused(self.address, error, self.at)
        if not state and any(phrase in text for phrase in ("no connection", "server closed", "could not receive")):
            return write_errors.unreachable(self.address, error, self.at)
        return write_errors.RowsRejected(self.address, error, self.at, state)


def _binary_types_of(column: SinkColumn) -> tuple[str, ...]:
    """Return the types whose binary form equals that of a column's values; none if a cast is needed."""
    return ("numeric",) if column.sql_type.startswith("numeric") else _BINARY_TYPES.get(column.sql_type, ())
