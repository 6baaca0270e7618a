"""Read a change of a table for a sink: the rows added and removed between two versions, with DuckDB.

Old rows have the newer version's columns, so that a column added since is null in them. Nothing is read until a sink
asks for it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from runnel.internal_names import internal_column
from runnel.lake.diff.file_delta import FileDelta, compute_file_delta, find_differing_files
from runnel.lake.diff.row_delta import ComparedColumn, count_changed_rows, find_common_columns
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_connection import connect_duckdb, translate_duckdb_errors
from runnel.lake.scan.duckdb_types import quote_identifier, to_duckdb_type
from runnel.lake.scan.scan_sql import rows_sql

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.flow_state.sink_backlog import DeliveryStep
    from runnel.lake.iceberg.manifests import FileEntry
    from runnel.lake.store import Store
    from runnel.names import TableName

BATCH_ROWS = 122_880
_COUNT = internal_column("count")
ReportProgress = Callable[[int, int], None]
"""Called with how many rows were delivered, and of how many."""


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
        metadata = self._after or self._before
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
            self._create_view("whole", rows_sql(self.store, self._after) if self._after else self._empty_select())
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
        names = ", ".join(map(quote_identifier, key))
        same = " AND ".join(
            f"gone.{quote_identifier(name)} IS NOT DISTINCT FROM came.{quote_identifier(name)}" for name in key
        )
        return (
            f"SELECT DISTINCT {names} FROM {self.removed_view()} AS gone "
            f"ANTI JOIN {self.added_view()} AS came ON {same}"
        )

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
    def _after(self) -> "TableMetadata | None":
        return load_metadata(self.store, self.step.after.location) if self.step.after else None

    @cached_property
    def _before(self) -> "TableMetadata | None":
        return load_metadata(self.store, self.step.before.location) if self.step.before and not self.is_full else None

    def _create_diff_views(self) -> None:
        """Create the views `came` and `gone`. Only files that differ are read; rows in both versions cancel out."""
        if "came" in self._created_views:
            return
        if self._before is None or self.is_full:
            self._create_view("gone", self._empty_select())
            self._create_view("came", f"FROM {self.all_rows_view()}")
            return
        before = self.step.before.location if self.step.before else None
        after = self.step.after.location if self.step.after else None
        file_delta = compute_file_delta(self.store, before, after)
        if self._after is not None and file_delta.appends_only and self._before.table_uuid == self._after.table_uuid:
            self._create_view("gone", self._empty_select())
            self._create_view("came", rows_sql(self.store, self._after, file_delta.added))
            return
        self._create_net_views(before, after, file_delta)

    def _create_net_views(self, before: str | None, after: str | None, file_delta: FileDelta) -> None:
        old, new = find_differing_files(self.store, before, after, file_delta)
        keys = ", ".join(column.key_expression for column in self.columns)
        select_list = ", ".join(
            f"any_value({quote_identifier(compared.name)}) AS {quote_identifier(compared.name)}"
            for compared in self.columns
        )
        total = f"sum({quote_identifier(_COUNT)})"
        self.connection.execute(
            f"CREATE TEMP TABLE net AS SELECT {total} AS {quote_identifier(_COUNT)}, "
            f"{select_list} FROM ({self._signed_rows_sql(old, new)})"
            f" GROUP BY {keys} HAVING {total} <> 0"
        )
        names = ", ".join(quote_identifier(column.name) for column in self.columns)
        for view, sign in (("gone", "-"), ("came", "")):
            signed_count = f"{sign}{quote_identifier(_COUNT)}"
            repeated_rows = f"SELECT *, unnest(range(CAST({signed_count} AS BIGINT))) FROM net WHERE {signed_count} > 0"
            self._create_view(view, f"SELECT {names} FROM ({repeated_rows})")

    def _signed_rows_sql(self, old: "Sequence[FileEntry]", new: "Sequence[FileEntry]") -> str:
        """Return a SELECT of the newer version's rows with count 1 and the older version's rows with count -1."""
        assert self._before is not None
        newer = self._after or self._before
        old_names = {
            new_field.field_id: quote_identifier(old_field.name)
            for old_field, new_field in find_common_columns(self._before, newer)
        }
        old_columns = [
            f"CAST({old_names.get(table_field.field_id, 'NULL')} AS {to_duckdb_type(table_field.field_type)}) "
            f"AS {quote_identifier(table_field.name)}"
            for table_field in newer.schema().fields
        ]
        names = [quote_identifier(table_field.name) for table_field in newer.schema().fields]
        selects = [
            f"SELECT -1 AS {quote_identifier(_COUNT)}, {', '.join(old_columns)} "
            f"FROM ({rows_sql(self.store, self._before, old)})"
        ]
        if self._after is not None:
            rows = rows_sql(self.store, self._after, new)
            selects.append(f"SELECT 1 AS {quote_identifier(_COUNT)}, {', '.join(names)} FROM ({rows})")
        return " UNION ALL ".join(selects)

    def _empty_select(self) -> str:
        select_list = [
            f"CAST(NULL AS {to_duckdb_type(column.kind)}) AS {quote_identifier(column.name)}" for column in self.columns
        ]
        return f"SELECT {', '.join(select_list) or 'NULL AS nothing'} WHERE false"

    def _create_view(self, name: str, sql: str) -> None:
        self.connection.execute(f"CREATE TEMP VIEW {name} AS {sql}")
        self._created_views.add(name)


@contextmanager
def open_change(
    store: "Store", table: "TableName", step: "DeliveryStep", key: str, report_progress: ReportProgress
) -> Iterator[OutgoingChange]:
    """Open a change with its own DuckDB connection."""
    with translate_duckdb_errors(), connect_duckdb() as connection:
        yield OutgoingChange(store, table, step, key, connection, report_progress)
