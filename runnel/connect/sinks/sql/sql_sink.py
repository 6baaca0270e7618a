"""Deliver a table to a database table. Its commit is stored in a second table, in the same transaction as the rows.

So each change is applied exactly once, even if a process is killed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.sink_target import DeliveredRows, check_sink_columns
from runnel.connect.sinks.sql import write_errors
from runnel.connect.sinks.sql.key_check import KeyCheck
from runnel.connect.sinks.sql.staged_change import StagedChange, StagingPlan
from runnel.connect.sinks.sql.writer import SinkColumn, SqlWriter, StagingWriter, build_writer, select_rows_sql
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.flow import Sink
from runnel.errors import Conflict, RunnelError
from runnel.lake.scan.duckdb_types import quote_literal

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import OutgoingChange

DELIVERIES_TABLE = "runnel_deliveries"


class SqlSink:
    """A table of a database."""

    def __init__(self, sink: Sink, target: Jdbc, root: Path, epoch: int) -> None:
        self._sink = sink
        self._mode = target.mode or "upsert"
        self._key = target.key
        self._epoch = epoch
        self._writer: SqlWriter = build_writer(target, root, str(sink.place))
        self._last_commit: str | None = None

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def delivered_commit(self, recorded: str | None) -> str | None:
        """Return the commit that the database has stored; None if the table does not exist."""
        self._create_deliveries_table()
        self._last_commit = self._read_commit()
        if self._writer.read_columns() is None:
            return None
        return self._last_commit or (recorded if self._mode == "append" else None)

    def deliver(self, change: "OutgoingChange") -> DeliveredRows:
        """Apply a change to the table in one transaction; executors may have staged its rows before."""
        columns = self._build_columns(change)
        if change.is_dropped and self._writer.read_columns() is None:
            columns = ()
        self._prepare_table(columns)
        with self._stage_in_units(change, columns) as staged:
            self._writer.begin()
            if self._read_commit(locks=True) != self._last_commit:
                what = f"another process wrote to `{self._writer.table}` meanwhile"
                raise Conflict("SINK_LOST", what, fix="nothing: the next delivery continues from there")
            rows = self._apply_rows(change, columns, staged) if columns else 0
            failpoints.reach(failpoints.SENDING)
            self._write_commit(change.commit)
            self._writer.commit()
            self._last_commit = change.commit
            return DeliveredRows(rows, staged.place)

    @contextmanager
    def _stage_in_units(self, change: "OutgoingChange", columns: Sequence[SinkColumn]) -> Iterator[StagedChange]:
        """Yield the rows that executors staged, if the delivery is made there; without it nothing is staged."""
        if change.work is None or not columns or not isinstance(self._writer, StagingWriter):
            yield StagedChange()
            return
        from runnel.connect.sinks.sql.staged_delivery import stage_change

        plan = StagingPlan(self._sink.name, tuple(columns), self._mode, self._build_key_check(change))
        with stage_change(self._writer, change, plan) as staged:
            yield staged

    def _apply_rows(self, change: "OutgoingChange", columns: Sequence[SinkColumn], staged: StagedChange) -> int:
        """Write the rows of a change, from the lake or from staging tables, and return their number."""
        if self._mode == "append":
            return self._load_added(change, columns, staged)
        if self._mode == "overwrite":
            self._writer.clear()
            return self._load_all(change, columns, staged)
        if staged.added is None:
            self._build_key_check(change).raise_if_ambiguous(change.connection, change.added_view())
        if not self._writer.fetch_rows(f"SELECT 1 FROM {self._writer.target} LIMIT 1"):
            return self._load_added(change, columns, staged)
        return self._upsert_rows(change, columns, staged)

    def _load_added(self, change: "OutgoingChange", columns: Sequence[SinkColumn], staged: StagedChange) -> int:
        if staged.added is None:
            return self._load_view(change, columns, change.added_view(), change.added_and_removed[0])
        return self._load_staged(columns, staged)

    def _load_all(self, change: "OutgoingChange", columns: Sequence[SinkColumn], staged: StagedChange) -> int:
        if staged.added is None:
            return self._load_view(change, columns, change.all_rows_view(), change.row_count)
        return self._load_staged(columns, staged)

    def _load_view(self, change: "OutgoingChange", columns: Sequence[SinkColumn], view: str, row_count: int) -> int:
        self._writer.load(columns, change.open_reader(select_rows_sql(columns, view), row_count))
        return row_count

    def _load_staged(self, columns: Sequence[SinkColumn], staged: StagedChange) -> int:
        assert isinstance(self._writer, StagingWriter) and staged.added is not None
        self._writer.load_staged(columns, staged.added)
        return staged.added_count

    def _upsert_rows(self, change: "OutgoingChange", columns: Sequence[SinkColumn], staged: StagedChange) -> int:
        if staged.added is not None:
            if staged.removed is not None and staged.removed_count:
                self._writer.delete(self._key, staged.removed)
            if staged.added_count:
                self._writer.upsert(columns, self._key, staged.added)
            return max(staged.added_count, staged.removed_count)
        added_count, removed_count = change.added_and_removed
        if removed_count:
            key_columns = [column for column in columns if column.name in self._key]
            removed_keys = select_rows_sql(key_columns, f"({change.removed_keys_sql(self._key)})")
            self._writer.delete(self._key, self._writer.stage(key_columns, change.open_reader(removed_keys)))
        if added_count:
            added_rows = change.open_reader(select_rows_sql(columns, change.added_view()), added_count)
            self._writer.upsert(columns, self._key, self._writer.stage(columns, added_rows))
        return max(added_count, removed_count)

    def _build_key_check(self, change: "OutgoingChange") -> KeyCheck:
        return KeyCheck(self._key, str(change.table), str(self._sink.place))

    def _build_columns(self, change: "OutgoingChange") -> tuple[SinkColumn, ...]:
        check_sink_columns(self._sink, change, self._key)
        return tuple(
            self._writer.build_column(column.name, column.kind, is_key=column.name in self._key)
            for column in change.columns
        )

    def _prepare_table(self, columns: Sequence[SinkColumn]) -> None:
        """Create the table if it does not exist, or add missing columns."""
        existing_columns = self._writer.read_columns()
        if existing_columns is None and columns:
            self._writer.create_table(columns, self._key)
            self._writer.read_columns()
            return
        for column in columns:
            if existing_columns is not None and column.name not in existing_columns:
                self._writer.add_column(column)
        self._writer.read_columns()

    def _create_deliveries_table(self) -> None:
        """Create the table of delivered commits; a user who may not create tables can use an existing one."""
        try:
            self._writer.execute(
                f"CREATE TABLE IF NOT EXISTS {self._deliveries_table} (sink "
                "VARCHAR(511) PRIMARY KEY, commit_id VARCHAR(40) NOT NULL,"
                " epoch INTEGER NOT NULL)"
            )
        except RunnelError as error:
            if error.code != write_errors.REFUSED or not self._has_deliveries_table():
                raise

    def _has_deliveries_table(self) -> bool:
        try:
            self._writer.fetch_rows(f"SELECT 1 FROM {self._deliveries_table} LIMIT 1")
        except write_errors.RowsRejected:
            return False
        return True

    @property
    def _deliveries_table(self) -> str:
        return self._writer.quote(DELIVERIES_TABLE)

    def _read_commit(self, *, locks: bool = False) -> str | None:
        query = (
            f"SELECT commit_id FROM {self._deliveries_table} WHERE sink = "
            f"{quote_literal(self._sink.name)} AND epoch = {self._epoch}"
        )
        rows = self._writer.fetch_rows(
            query + (" FOR UPDATE" if locks and self._writer.address.kind != "sqlite" else "")
        )
        return str(rows[0][0]) if rows else None

    def _write_commit(self, commit: str) -> None:
        name = quote_literal(self._sink.name)
        self._writer.execute(f"DELETE FROM {self._deliveries_table} WHERE sink = {name}")
        self._writer.execute(
            f"INSERT INTO {self._deliveries_table} VALUES ({name}, {quote_literal(commit)}, {self._epoch})"
        )
