"""Read a change of a table for a sink: the rows added and removed between two versions, with DuckDB.

Old rows have the newer version's columns, so that a column added since is null in them. Nothing is read until a sink
asks for it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from runnel.connect.sinks.net_rows import create_net_views, old_rows_sql, removed_keys_sql
from runnel.lake.diff.compared_columns import ComparedColumn
from runnel.lake.diff.file_delta import compute_file_delta, find_differing_files
from runnel.lake.diff.row_delta import count_changed_rows
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type
from runnel.lake.scan.scan_sql import rows_sql

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.flow_state.sink_backlog import DeliveryStep
    from runnel.lake.store import Store
    from runnel.lake.work_runner import ChooseRunner, ReportUnits
    from runnel.names import TableName

BATCH_ROWS = 122_880
ReportProgress = Callable[[int, int], None]
"""Called with how many rows were delivered, and of how many."""


@dataclass(frozen=True)
class ChangedFiles:
    """The files, with their deletes, that hold every row in which two versions differ.

    If `has_only_added_rows`, the rows of `new` are the added rows. Otherwise rows of `old` and `new` cancel out.
    """

    old: tuple[FileEntry, ...]
    new: tuple[FileEntry, ...]
    has_only_added_rows: bool


@dataclass(frozen=True)
class DeliveryWork:
    """Where a delivery may be made, and the callback for finished work units."""

    choose_runner: "ChooseRunner"
    report_units: "ReportUnits | None" = None


@dataclass
class OutgoingChange:
    """One delivery step of a sink. `key` is the same if this step is delivered again.

    If `is_full`, all rows count as added. `connection` gets the views `came` (added rows), `gone` (removed rows) and
    `whole` (all rows of the newer version) when they are first used.
    """

    store: "Store"
    table: "TableName"
    step: "DeliveryStep"
    key: str
    connection: "duckdb.DuckDBPyConnection" = field(repr=False)
    report_progress: ReportProgress = field(repr=False)
    work: DeliveryWork | None = None  # None if everything is done in this process
    _created_views: set[str] = field(default_factory=set, init=False, repr=False)  # listing views in DuckDB is slow

    @property
    def commit(self) -> str:
        """Return the id of the commit that made this change."""
        return self.step.commit.id

    @property
    def is_full(self) -> bool:
        """Tell whether it is unknown which version the sink has, so that all rows are delivered."""
        return self.step.is_full

    @property
    def is_dropped(self) -> bool:
        """Tell whether the table no longer exists."""
        return self.step.after is None

    @cached_property
    def columns(self) -> tuple[ComparedColumn, ...]:
        """Return the columns of the table; of a dropped table those that it had."""
        metadata = self.after or self.before
        return (
            tuple(ComparedColumn(column.name, column.field_type) for column in metadata.schema().fields)
            if metadata
            else ()
        )

    @cached_property
    def row_count(self) -> int:
        """Return how many rows the table has now."""
        return count_changed_rows(self.store, None, self.step.after.location)[0] if self.step.after else 0

    @cached_property
    def added_and_removed(self) -> tuple[int, int]:
        """Return how many rows were added and removed."""
        if self.is_full:
            return self.row_count, 0
        self._create_diff_views()
        added, removed = (self.fetch_row(f"SELECT count(*) FROM {view}") or (0,) for view in ("came", "gone"))
        return added[0], removed[0]

    def all_rows_view(self) -> str:
        """Return the name of the view of all rows."""
        if "whole" not in self._created_views:
            self._create_view("whole", rows_sql(self.store, self.after) if self.after else self.empty_select())
        return "whole"

    def added_view(self) -> str:
        """Return the name of the view of added rows."""
        self._create_diff_views()
        return "came"

    def removed_view(self) -> str:
        """Return the name of the view of removed rows; a changed row is both removed and added."""
        self._create_diff_views()
        return "gone"

    def removed_keys_sql(self, key: Sequence[str]) -> str:
        """Return a SELECT of the keys that no row has anymore."""
        self._create_diff_views()
        return removed_keys_sql(key)

    def fetch_row(self, sql: str) -> tuple[Any, ...] | None:
        """Return the first row of a query."""
        return next(iter(self.connection.execute(sql).fetchall()), None)

    def open_reader(self, sql: str, total: int | None = None) -> "pa.RecordBatchReader":
        """Return the rows of a query, batch by batch; with `total` progress is reported after each batch."""
        import pyarrow as pa

        batch_reader = cast("pa.RecordBatchReader", self.connection.sql(sql).to_arrow_reader(BATCH_ROWS))
        if total is None:
            return batch_reader
        return pa.RecordBatchReader.from_batches(batch_reader.schema, self._report_batches(batch_reader, total))

    def _report_batches(self, rows: "Iterable[pa.RecordBatch]", total: int) -> "Iterator[pa.RecordBatch]":
        done = 0
        for batch in rows:
            yield batch
            done += batch.num_rows
            self.report_progress(done, total)

    def read_table(self, sql: str) -> "pa.Table":
        """Return the rows of a query."""
        return cast("pa.Table", self.connection.sql(sql).to_arrow_table())

    @cached_property
    def after(self) -> "TableMetadata | None":
        """Return the newer version; None if the table was dropped."""
        return load_metadata(self.store, self.step.after.location) if self.step.after else None

    @cached_property
    def before(self) -> "TableMetadata | None":
        """Return the version that the sink has; None if all rows are delivered."""
        return load_metadata(self.store, self.step.before.location) if self.step.before and not self.is_full else None

    @cached_property
    def changed_files(self) -> ChangedFiles:
        """Return the files that differ; all files of the newer version if all rows are delivered."""
        if self.before is None:
            return ChangedFiles((), self.list_all_files(), has_only_added_rows=True)
        before = self.step.before.location if self.step.before else None
        after = self.step.after.location if self.step.after else None
        file_delta = compute_file_delta(self.store, before, after)
        if self.after is not None and file_delta.appends_only and self.before.table_uuid == self.after.table_uuid:
            return ChangedFiles((), file_delta.added, has_only_added_rows=True)
        old, new = find_differing_files(self.store, before, after, file_delta)
        return ChangedFiles(old, new, has_only_added_rows=False)

    def list_all_files(self) -> tuple[FileEntry, ...]:
        """Return all data and delete files of the newer version."""
        return tuple(read_entries(self.store, self.after)) if self.after else ()

    def _create_diff_views(self) -> None:
        """Create the views `came` and `gone`. Only files that differ are read; rows in both versions cancel out."""
        if "came" in self._created_views:
            return
        if self.before is None:
            self._create_view("gone", self.empty_select())
            self._create_view("came", f"FROM {self.all_rows_view()}")
            return
        files = self.changed_files
        if files.has_only_added_rows and self.after is not None:
            self._create_view("gone", self.empty_select())
            self._create_view("came", rows_sql(self.store, self.after, files.new))
            return
        old_rows = old_rows_sql(self.store, self.before, self.after or self.before, files.old)
        new_rows = rows_sql(self.store, self.after, files.new) if self.after is not None else None
        create_net_views(self.connection, self.columns, old_rows, new_rows)
        self._created_views |= {"came", "gone"}

    def empty_select(self) -> str:
        """Return a SELECT with the columns of the table and no rows."""
        select_list = [
            f"CAST(NULL AS {to_duckdb_type(column.kind)}) AS {quote_identifier(column.name)}" for column in self.columns
        ]
        return f"SELECT {', '.join(select_list) or 'NULL AS nothing'} WHERE false"

    def _create_view(self, name: str, sql: str) -> None:
        self.connection.execute(f"CREATE TEMP VIEW {name} AS {sql}")
        self._created_views.add(name)


@contextmanager
def open_change(
    store: "Store",
    table: "TableName",
    step: "DeliveryStep",
    key: str,
    report_progress: ReportProgress,
    *,
    work: DeliveryWork | None = None,
) -> Iterator[OutgoingChange]:
    """Open a change with its own DuckDB connection."""
    with translate_duckdb_errors(), connect_duckdb() as connection:
        yield OutgoingChange(store, table, step, key, connection, report_progress, work)
