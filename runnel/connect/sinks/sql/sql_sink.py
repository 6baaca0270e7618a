"""Deliver a table to a database table. Its commit is stored in a second table, in the same transaction as the rows.

So each change is applied exactly once, even if a process is killed.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.sink_target import check_sink_columns
from runnel.connect.sinks.sql.writer import SinkColumn, SqlWriter, build_writer
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.flow import Sink
from runnel.errors import Conflict, Mistake
from runnel.lake.scan.duckdb_types import quote_identifier, quote_literal

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
        self._writer.execute(
            f"CREATE TABLE IF NOT EXISTS {self._deliveries_table} (sink "
            "VARCHAR(511) PRIMARY KEY, commit_id VARCHAR(40) NOT NULL,"
            " epoch INTEGER NOT NULL)"
        )
        self._last_commit = self._read_commit()
        if self._writer.read_columns() is None:
            return None
        return self._last_commit or (recorded if self._mode == "append" else None)

    def deliver(self, change: "OutgoingChange") -> int:
        """Apply a change to the table in one transaction."""
        columns = self._build_columns(change)
        if change.is_dropped and self._writer.read_columns() is None:
            columns = ()
        self._prepare_table(columns)
        self._writer.begin()
        if self._read_commit(locks=True) != self._last_commit:
            what = f"another process wrote to `{self._writer.table}` meanwhile"
            raise Conflict("SINK_LOST", what, fix="nothing: the next delivery continues from there")
        rows = self._write_rows(change, columns) if columns else 0
        failpoints.reach(failpoints.SENDING)
        self._write_commit(change.commit)
        self._writer.commit()
        self._last_commit = change.commit
        return rows

    def _write_rows(self, change: "OutgoingChange", columns: Sequence[SinkColumn]) -> int:
        writer = self._writer
        if self._mode == "append":
            writer.load(
                columns, change.open_reader(_select_sql(columns, change.added_view()), change.added_and_removed[0])
            )
            return change.added_and_removed[0]
        if self._mode == "overwrite":
            writer.clear()
            writer.load(columns, change.open_reader(_select_sql(columns, change.all_rows_view()), change.row_count))
            return change.row_count
        self._check_key(change)
        if not writer.fetch_rows(f"SELECT 1 FROM {writer.target} LIMIT 1"):
            writer.load(
                columns, change.open_reader(_select_sql(columns, change.added_view()), change.added_and_removed[0])
            )
            return change.added_and_removed[0]
        return self._upsert_rows(change, columns)

    def _upsert_rows(self, change: "OutgoingChange", columns: Sequence[SinkColumn]) -> int:
        added_count, removed_count = change.added_and_removed
        if removed_count:
            key_columns = [column for column in columns if column.name in self._key]
            removed_keys = f"SELECT {_select_list(key_columns)} FROM ({change.removed_keys_sql(self._key)})"
            self._writer.stage(key_columns, change.open_reader(removed_keys))
            self._writer.delete(self._key)
        if added_count:
            self._writer.stage(
                columns, change.open_reader(_select_sql(columns, change.added_view()), change.added_and_removed[0])
            )
            self._writer.upsert(columns, self._key)
        return max(added_count, removed_count)

    def _check_key(self, change: "OutgoingChange") -> None:
        """Raise if two rows have the same key, or a key has a null."""
        names = ", ".join(map(quote_identifier, self._key))
        null_condition = " OR ".join(f"{quote_identifier(name)} IS NULL" for name in self._key)
        row = change.fetch_row(
            f"SELECT {names}, count(*) FROM {change.added_view()} GROUP BY "
            f"{names} HAVING count(*) > 1 OR {null_condition} LIMIT 1"
        )
        if row is not None:
            key_text = ", ".join(f"{name} = {value}" for name, value in zip(self._key, row, strict=False))
            reason = "lacks a value" if None in row else "belongs to several rows"
            what = f"the key of the sink of `{change.table}` {reason}: {key_text}"
            fix = "name columns whose values identify a row: key=[...]"
            raise Mistake("SINK_KEY_VALUES", what, at=str(self._sink.place), fix=fix)

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


def _select_sql(columns: Sequence[SinkColumn], view: str) -> str:
    return f"SELECT {_select_list(columns)} FROM {view}"


def _select_list(columns: Sequence[SinkColumn]) -> str:
    return ", ".join(f"{column.read_sql} AS {quote_identifier(column.name)}" for column in columns)
