"""Write to MySQL or MariaDB. DDL commits implicitly there, so tables are changed before the transaction begins."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyiceberg.types import DecimalType, IcebergType

from runnel.connect.sinks.sql import write_errors
from runnel.connect.sinks.sql.row_values import convert_batches, join_placeholders, to_mysql_value
from runnel.connect.sinks.sql.writer import STAGING_TABLE, Row, SinkColumn, StagingWriter
from runnel.errors import RunnelError
from runnel.lake.scan.duckdb_types import quote_identifier, quote_literal, to_duckdb_type

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {
    "BOOLEAN": "TINYINT(1)",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "TIME": "TIME(6)",
    "TIMESTAMP": "DATETIME(6)",
    "TIMESTAMPTZ": "DATETIME(6)",
    "UUID": "CHAR(36)",
}
_TRANSIENT_ERRORS = (1205, 1213, 2002, 2003, 2006, 2013, 1040, 1053)
_ACCESS_ERRORS = (1044, 1045, 1049, 1142, 1227)


class MySqlWriter(StagingWriter):
    """A connection to MySQL or MariaDB."""

    _connection: Any = None

    def connect(self) -> None:
        """Connect."""
        from runnel.connect.jdbc.drivers.mysql_connection import connect

        with self._translate_errors():
            self._connection = connect(self.address)

    def close(self) -> None:
        """Close the connection; an uncommitted transaction is rolled back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def begin(self) -> None:
        """Begin."""
        self.execute("START TRANSACTION")

    def commit(self) -> None:
        """Commit."""
        self.execute("COMMIT")

    def quote(self, name: str) -> str:
        """Return a name as SQL.

        >>> MySqlWriter.quote(None, "a`b")
        '`a``b`'
        """
        return "`" + name.replace("`", "``") + "`"

    def execute(self, sql: str) -> None:
        """Run a statement."""
        with self._translate_errors(), self._connection.cursor() as cursor:
            cursor.execute(sql)

    def fetch_rows(self, sql: str) -> list[Row]:
        """Return the rows of a query."""
        with self._translate_errors(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def read_columns(self) -> Mapping[str, str] | None:
        """Return the columns of the table with their types."""
        rows = self.fetch_rows(
            f"SELECT column_name, column_type FROM information_schema.columns WHERE {self._table_condition()} ORDER BY"
            " ordinal_position"
        )
        return dict(rows) or None

    def build_column(self, name: str, kind: IcebergType, *, is_key: bool) -> SinkColumn:
        """Return how a column is written; a text in a key has at most 255 characters."""
        if isinstance(kind, DecimalType):
            return SinkColumn(name, f"DECIMAL({kind.precision},{kind.scale})", quote_identifier(name))
        if not kind.is_primitive:
            return SinkColumn(name, "JSON", f"CAST(to_json({quote_identifier(name)}) AS VARCHAR)")
        type_name = to_duckdb_type(kind)
        if type_name == "VARCHAR":
            return SinkColumn(name, "VARCHAR(255)" if is_key else "LONGTEXT", quote_identifier(name))
        if type_name == "BLOB":
            return SinkColumn(name, "VARBINARY(255)" if is_key else "LONGBLOB", quote_identifier(name))
        return SinkColumn(
            name,
            _TYPES[type_name],
            f"CAST({quote_identifier(name)} AS VARCHAR)" if type_name == "UUID" else quote_identifier(name),
        )

    def load(self, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> None:
        """Insert rows into the table."""
        self._insert_rows(self.target, columns, rows)

    def stage(self, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> str:
        """Insert rows into a temporary table."""
        self.execute(f"DROP TEMPORARY TABLE IF EXISTS {STAGING_TABLE}")
        definitions = ", ".join(f"{self.quote(column.name)} {column.sql_type}" for column in columns)
        self.execute(f"CREATE TEMPORARY TABLE {STAGING_TABLE} ({definitions})")
        self._insert_rows(STAGING_TABLE, columns, rows)
        return STAGING_TABLE

    def create_staging_table(
        self,
        name: str,
        columns: Sequence[SinkColumn],
        rows: "pa.RecordBatchReader",  # noqa: ARG002 - the types of columns say it
    ) -> None:
        """Create a staging table."""
        definitions = ", ".join(f"{self.quote(column.name)} {column.sql_type}" for column in columns)
        self.execute(f"CREATE TABLE {self.qualify(name)} ({definitions})")

    def load_staging_table(self, name: str, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> None:
        """Add rows to a staging table, in one transaction."""
        self.begin()
        self._insert_rows(self.qualify(name), columns, rows)
        self.commit()

    def load_staged(self, columns: Sequence[SinkColumn], staged: str) -> None:
        """Add staged rows to the table."""
        names = self.join_names([column.name for column in columns])
        self.execute(f"INSERT INTO {self.target} ({names}) SELECT {names} FROM {staged}")

    def list_tables(self, prefix: str) -> list[str]:
        """Return the tables of the schema whose names begin with a prefix."""
        condition = f"{self._schema_condition()} AND left(table_name, {len(prefix)}) = {quote_literal(prefix)}"
        rows = self.fetch_rows(f"SELECT table_name FROM information_schema.tables WHERE {condition}")
        return [str(name) for (name,) in rows]

    def upsert(self, columns: Sequence[SinkColumn], key: Sequence[str], staged: str) -> None:
        """Insert the staged rows, or update those with the same key."""
        if not self._is_unique(key):
            raise write_errors.no_key(self.address, self.table, ", ".join(key), self.at)
        names = self.join_names([column.name for column in columns])
        update = ", ".join(
            f"{self.quote(staged_column.name)} = VALUES({self.quote(staged_column.name)})" for staged_column in columns
        )
        rows = f"SELECT {names} FROM {staged}"
        self.execute(f"INSERT INTO {self.target} ({names}) {rows} ON DUPLICATE KEY UPDATE {update}")

    def _is_unique(self, key: Sequence[str]) -> bool:
        index_rows = self.fetch_rows(
            "SELECT GROUP_CONCAT(column_name ORDER BY column_name) FROM information_schema.statistics"
            f" WHERE {self._table_condition()} AND non_unique = 0 GROUP BY index_name"
        )
        return ",".join(sorted(key)) in [names for (names,) in index_rows]

    def _table_condition(self) -> str:
        return f"{self._schema_condition()} AND table_name = {quote_literal(self.table)}"

    def _schema_condition(self) -> str:
        return f"table_schema = {quote_literal(self.schema) if self.schema else 'DATABASE()'}"

    def _insert_rows(self, table: str, columns: Sequence[SinkColumn], rows: "pa.RecordBatchReader") -> None:
        names = self.join_names([column.name for column in columns])
        sql = f"INSERT INTO {table} ({names}) VALUES ({join_placeholders(columns, '%s')})"
        with self._translate_errors(), self._connection.cursor() as cursor:
            for batch in convert_batches(rows, to_mysql_value):
                cursor.executemany(sql, batch)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        import pymysql  # type: ignore[import-untyped]

        try:
            yield
        except pymysql.Error as error:
            raise self._build_error(error) from None

    def _build_error(self, error: Exception) -> RunnelError:
        code = error.args[0] if error.args else None
        if code in _TRANSIENT_ERRORS:
            return write_errors.unreachable(self.address, error, self.at)
        return (write_errors.refused if code in _ACCESS_ERRORS else write_errors.RowsRejected)(
            self.address, error, self.at
        )
