"""A table of a database as a sink. Which commit it has stands in a table beside it, written in the same transaction.

So each change is there once, whatever is killed when.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.column_lookup import check_columns
from runnel.connect.sinks.sql.writer import Column, Writer, writer_of
from runnel.declare.model.endpoints import Jdbc
from runnel.declare.model.flow import Sink
from runnel.errors import Conflict, Mistake
from runnel.lake.scan.duckdb_types import literal, quoted

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import Change

BOOK = "runnel_deliveries"


class SqlOutlet:
    """A table of a database."""

    def __init__(self, sink: Sink, target: Jdbc, root: Path, epoch: int) -> None:
        self._sink = sink
        self._mode = target.mode or "upsert"
        self._key = target.key
        self._epoch = epoch
        self._writer: Writer = writer_of(target, root, str(sink.place))
        self._had: str | None = None

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def position(self, recorded: str | None) -> str | None:
        """Return what the database says; it has nothing where the table is gone."""
        self._writer.execute(
            f"CREATE TABLE IF NOT EXISTS {self._book} (sink VARCHAR(511) PRIMARY KEY, commit_id VARCHAR(40) NOT NULL,"
            " epoch INTEGER NOT NULL)"
        )
        self._had = self._noted()
        if self._writer.known() is None:
            return None
        return self._had or (recorded if self._mode == "append" else None)

    def take(self, change: "Change") -> int:
        """Bring the table to the version of a change, in one transaction."""
        columns = self._columns(change)
        if change.is_dropped and self._writer.known() is None:
            columns = ()
        self._prepare(columns)
        self._writer.begin()
        if self._noted(locks=True) != self._had:
            what = f"another process wrote to `{self._writer.table}` meanwhile"
            raise Conflict("SINK_LOST", what, fix="nothing: the next delivery goes on from there")
        rows = self._write(change, columns) if columns else 0
        failpoints.reach(failpoints.SENDING)
        self._note(change.commit)
        self._writer.commit()
        self._had = change.commit
        return rows

    def _write(self, change: "Change", columns: Sequence[Column]) -> int:
        writer = self._writer
        if self._mode == "append":
            writer.load(columns, change.reader(_select(columns, change.came()), change.sizes[0]))
            return change.sizes[0]
        if self._mode == "overwrite":
            writer.clear()
            writer.load(columns, change.reader(_select(columns, change.whole()), change.rows))
            return change.rows
        self._check_key(change)
        if not writer.rows(f"SELECT 1 FROM {writer.target} LIMIT 1"):
            writer.load(columns, change.reader(_select(columns, change.came()), change.sizes[0]))
            return change.sizes[0]
        return self._upsert(change, columns)

    def _upsert(self, change: "Change", columns: Sequence[Column]) -> int:
        came, went = change.sizes
        if went:
            keys = [column for column in columns if column.name in self._key]
            gone = f"SELECT {_shown(keys)} FROM ({change.gone_keys(self._key)})"
            self._writer.stage(keys, change.reader(gone))
            self._writer.delete(self._key)
        if came:
            self._writer.stage(columns, change.reader(_select(columns, change.came()), change.sizes[0]))
            self._writer.upsert(columns, self._key)
        return max(came, went)

    def _check_key(self, change: "Change") -> None:
        """Raise where the key does not tell rows apart, or lacks a value."""
        names = ", ".join(map(quoted, self._key))
        empty = " OR ".join(f"{quoted(name)} IS NULL" for name in self._key)
        found = change.one(
            f"SELECT {names}, count(*) FROM {change.came()} GROUP BY {names} HAVING count(*) > 1 OR {empty} LIMIT 1"
        )
        if found is not None:
            shown = ", ".join(f"{name} = {value}" for name, value in zip(self._key, found, strict=False))
            why = "lacks a value" if None in found else "is that of several rows"
            what = f"the key of the sink of `{change.table}` {why}: {shown}"
            fix = "name columns whose values identify a row: key=[...]"
            raise Mistake("SINK_KEY_VALUES", what, at=str(self._sink.place), fix=fix)

    def _columns(self, change: "Change") -> tuple[Column, ...]:
        check_columns(self._sink, change, self._key)
        return tuple(
            self._writer.column(column.name, column.kind, is_key=column.name in self._key) for column in change.columns
        )

    def _prepare(self, columns: Sequence[Column]) -> None:
        """Make the table where it lacks, and the columns that came since."""
        known = self._writer.known()
        if known is None and columns:
            self._writer.create(columns, self._key)
            self._writer.known()
            return
        for column in columns:
            if known is not None and column.name not in known:
                self._writer.add(column)
        self._writer.known()

    @property
    def _book(self) -> str:
        return self._writer.quote(BOOK)

    def _noted(self, *, locks: bool = False) -> str | None:
        query = f"SELECT commit_id FROM {self._book} WHERE sink = {literal(self._sink.name)} AND epoch = {self._epoch}"
        found = self._writer.rows(query + (" FOR UPDATE" if locks and self._writer.address.kind != "sqlite" else ""))
        return str(found[0][0]) if found else None

    def _note(self, commit: str) -> None:
        name = literal(self._sink.name)
        self._writer.execute(f"DELETE FROM {self._book} WHERE sink = {name}")
        self._writer.execute(f"INSERT INTO {self._book} VALUES ({name}, {literal(commit)}, {self._epoch})")


def _select(columns: Sequence[Column], view: str) -> str:
    return f"SELECT {_shown(columns)} FROM {view}"


def _shown(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.read} AS {quoted(column.name)}" for column in columns)
