"""Write to MySQL or MariaDB. What changes tables there commits by itself, so it is done before anything else."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyiceberg.types import DecimalType, IcebergType

from runnel.connect.sinks.sql import write_errors
from runnel.connect.sinks.sql.row_values import marks, tuples, utc
from runnel.connect.sinks.sql.writer import STAGED, Column, Row, Writer
from runnel.errors import RunnelError
from runnel.lake.scan.duckdb_types import duckdb_type, literal, quoted

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
_PASSING = (1205, 1213, 2002, 2003, 2006, 2013, 1040, 1053)
_REFUSED = (1044, 1045, 1049, 1142, 1227)


class MySql(Writer):
    """A connection to MySQL or MariaDB."""

    _connection: Any = None

    def connect(self) -> None:
        """Connect."""
        from runnel.connect.jdbc.drivers.mysql_connection import connect

        with self._told():
            self._connection = connect(self.address)

    def close(self) -> None:
        """Close it; the transaction that was not committed is undone."""
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

        >>> MySql.quote(None, "a`b")
        '`a``b`'
        """
        return "`" + name.replace("`", "``") + "`"

    def execute(self, sql: str) -> None:
        """Do something."""
        with self._told(), self._connection.cursor() as cursor:
            cursor.execute(sql)

    def rows(self, sql: str) -> list[Row]:
        """Return what a query says."""
        with self._told(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def known(self) -> Mapping[str, str] | None:
        """Return the columns of the table with their types."""
        found = self.rows(
            f"SELECT column_name, column_type FROM information_schema.columns WHERE {self._here()} ORDER BY"
            " ordinal_position"
        )
        return dict(found) or None

    def column(self, name: str, kind: IcebergType, *, is_key: bool) -> Column:
        """Return how a column goes out; a text of a key has at most 255 characters."""
        if isinstance(kind, DecimalType):
            return Column(name, f"DECIMAL({kind.precision},{kind.scale})", quoted(name))
        if not kind.is_primitive:
            return Column(name, "JSON", f"CAST(to_json({quoted(name)}) AS VARCHAR)")
        found = duckdb_type(kind)
        if found == "VARCHAR":
            return Column(name, "VARCHAR(255)" if is_key else "LONGTEXT", quoted(name))
        if found == "BLOB":
            return Column(name, "VARBINARY(255)" if is_key else "LONGBLOB", quoted(name))
        return Column(name, _TYPES[found], f"CAST({quoted(name)} AS VARCHAR)" if found == "UUID" else quoted(name))

    def load(self, columns: Sequence[Column], rows: "pa.RecordBatchReader") -> None:
        """Insert rows into the table."""
        self._insert(self.target, columns, rows)

    def stage(self, columns: Sequence[Column], rows: "pa.RecordBatchReader") -> None:
        """Insert rows into a temporary table."""
        self.execute(f"DROP TEMPORARY TABLE IF EXISTS {STAGED}")
        made = ", ".join(f"{self.quote(column.name)} {column.kind}" for column in columns)
        self.execute(f"CREATE TEMPORARY TABLE {STAGED} ({made})")
        self._insert(STAGED, columns, rows)

    def upsert(self, columns: Sequence[Column], key: Sequence[str]) -> None:
        """Insert the staged rows, or update those with the same key."""
        if not self._is_unique(key):
            raise write_errors.no_key(self.address, self.table, ", ".join(key), self.at)
        names = self.names([column.name for column in columns])
        update = ", ".join(f"{self.quote(one.name)} = VALUES({self.quote(one.name)})" for one in columns)
        rows = f"SELECT {names} FROM {STAGED}"
        self.execute(f"INSERT INTO {self.target} ({names}) {rows} ON DUPLICATE KEY UPDATE {update}")

    def _is_unique(self, key: Sequence[str]) -> bool:
        found = self.rows(
            "SELECT GROUP_CONCAT(column_name ORDER BY column_name) FROM information_schema.statistics"
            f" WHERE {self._here()} AND non_unique = 0 GROUP BY index_name"
        )
        return ",".join(sorted(key)) in [names for (names,) in found]

    def _here(self) -> str:
        schema = literal(self.schema) if self.schema else "DATABASE()"
        return f"table_schema = {schema} AND table_name = {literal(self.table)}"

    def _insert(self, table: str, columns: Sequence[Column], rows: "pa.RecordBatchReader") -> None:
        names = self.names([column.name for column in columns])
        sql = f"INSERT INTO {table} ({names}) VALUES ({marks(columns, '%s')})"
        with self._told(), self._connection.cursor() as cursor:
            for batch in tuples(rows, utc):
                cursor.executemany(sql, batch)

    @contextmanager
    def _told(self) -> Iterator[None]:
        import pymysql  # type: ignore[import-untyped]

        try:
            yield
        except pymysql.Error as error:
            raise self._meant(error) from None

    def _meant(self, error: Exception) -> RunnelError:
        code = error.args[0] if error.args else None
        if code in _PASSING:
            return write_errors.unreachable(self.address, error, self.at)
        return (write_errors.refused if code in _REFUSED else write_errors.NotAccepted)(self.address, error, self.at)
