"""Stage the rows of a change in tables of the target database, in work units; the driver then applies them.

Each attempt of a unit marks its rows with a random number, and returns it. The driver applies the rows of those numbers
only, one for each unit. So it does not matter how often a unit runs, whether two attempts run at once, or whether one
ends after half of its rows: nobody deletes or locks anything. The names of the tables are new for each delivery, so a
unit of an earlier delivery that still runs can't write to them. Whatever is left over, the next delivery of the sink
drops.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.connect.jdbc.url import DatabaseAddress
from runnel.connect.sinks import failpoints
from runnel.connect.sinks.net_rows import ADDED_VIEW, REMOVED_VIEW, removed_keys_sql
from runnel.connect.sinks.sql.key_check import KeyCheck
from runnel.connect.sinks.sql.writer import ATTEMPT, SinkColumn, StagingWriter, build_staging_writer, select_rows_sql
from runnel.connect.sinks.table_change import BATCH_ROWS
from runnel.connect.sinks.units.bucket_rows import open_bucket
from runnel.connect.sinks.units.change_rows import ChangeRows
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.scan_units import ScanUnit

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_PREFIX = "runnel_staging_"
_ATTEMPT_BITS = 62


@dataclass(frozen=True)
class StagingTables:
    """The tables of a delivery: for the rows to write, and for the keys to delete, if there may be any."""

    added: str
    removed: str | None = None


@dataclass(frozen=True)
class StagedUnit:
    """What a unit staged: the number of its attempt, rows to write, and removed rows, whose keys are staged."""

    attempt: int
    added: int
    removed: int = 0


def get_table_prefix(sink_name: str) -> str:
    """Return how the names of all staging tables of a sink begin.

    >>> get_table_prefix("ods.orders:jdbc-1f0c9a3e")
    'runnel_staging_8eb0c1a7a6df_'
    """
    return f"{_PREFIX}{_digest(sink_name, 12)}_"


def create_table_names(sink_name: str, delivery_key: str, *, has_removed_rows: bool) -> StagingTables:
    """Return new names for the staging tables of a delivery."""
    name = f"{get_table_prefix(sink_name)}{_digest(delivery_key, 8)}_{secrets.token_hex(4)}"
    return StagingTables(f"{name}_added", f"{name}_removed" if has_removed_rows else None)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


@dataclass(frozen=True)
class StagingTarget:
    """How a unit reaches the staging tables; can be pickled. Its text has no password."""

    address: DatabaseAddress
    table: str
    at: str
    tables: StagingTables
    columns: tuple[SinkColumn, ...]
    key: tuple[str, ...] = ()

    def connect(self) -> StagingWriter:
        """Return a writer that connects when it is entered."""
        return build_staging_writer(self.address, self.table, self.at)

    def load_added(self, writer: StagingWriter, con: "duckdb.DuckDBPyConnection", rows: str, attempt: int) -> int:
        """Load rows to write, and return how many."""
        return _load_rows(writer, con, self.tables.added, (*self.columns, build_attempt_column(attempt)), rows)

    def load_removed(self, writer: StagingWriter, con: "duckdb.DuckDBPyConnection", attempt: int) -> None:
        """Load the keys of removed rows that no added row has."""
        assert self.tables.removed is not None
        columns = (*self.key_columns, build_attempt_column(attempt))
        _load_rows(writer, con, self.tables.removed, columns, f"({removed_keys_sql(self.key)})")

    @property
    def key_columns(self) -> tuple[SinkColumn, ...]:
        """Return the columns of the key."""
        return tuple(column for column in self.columns if column.name in self.key)


@dataclass(frozen=True)
class UnitStager:
    """Stages all rows of some files."""

    rows: ChangeRows
    target: StagingTarget

    def __call__(self, unit: ScanUnit) -> StagedUnit:
        """Stage a unit."""
        attempt = secrets.randbits(_ATTEMPT_BITS)
        with translate_duckdb_errors(), connect_duckdb() as con, self.target.connect() as writer:
            added = self.target.load_added(writer, con, f"({self.rows.build_sql(unit)})", attempt)
            failpoints.reach(failpoints.STAGING)
            return StagedUnit(attempt, added)


@dataclass(frozen=True)
class BucketStager:
    """Stages the added rows of a bucket and, if there is a table for them, the keys of removed rows."""

    rows: ChangeRows
    target: StagingTarget
    has_only_added_rows: bool
    key_check: KeyCheck | None = None

    def __call__(self, _bucket: int, pieces: Iterator[bytes]) -> StagedUnit:
        """Stage a bucket."""
        attempt = secrets.randbits(_ATTEMPT_BITS)
        with open_bucket(self.rows.columns, pieces, has_only_added_rows=self.has_only_added_rows) as con:
            if self.key_check is not None:
                self.key_check.raise_if_ambiguous(con, ADDED_VIEW)
            with self.target.connect() as writer:
                added = self.target.load_added(writer, con, ADDED_VIEW, attempt)
                failpoints.reach(failpoints.STAGING)
                ((removed,),) = con.execute(f"SELECT count(*) FROM {REMOVED_VIEW}").fetchall()
                if removed and self.target.tables.removed is not None:
                    self.target.load_removed(writer, con, attempt)
        return StagedUnit(attempt, added, int(removed))


def build_attempt_column(attempt: int = 0) -> SinkColumn:
    """Return the column that marks the rows of an attempt."""
    return SinkColumn(ATTEMPT, "BIGINT", f"CAST({attempt} AS BIGINT)")


def _load_rows(
    writer: StagingWriter, con: "duckdb.DuckDBPyConnection", table: str, columns: Sequence[SinkColumn], rows: str
) -> int:
    import pyarrow as pa

    counter = _RowCounter()
    with con.sql(select_rows_sql(columns, rows)).to_arrow_reader(BATCH_ROWS) as reader:
        counted_rows = pa.RecordBatchReader.from_batches(reader.schema, counter.count(reader))
        writer.load_staging_table(table, columns, counted_rows)
    return counter.rows


class _RowCounter:
    rows = 0

    def count(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Yield the batches, and add up their rows."""
        for batch in batches:
            self.rows += batch.num_rows
            yield batch
