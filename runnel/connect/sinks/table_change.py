"""A change of a table on its way out: the rows that came and went between two versions, read with DuckDB.

Old rows are seen through the newer version's columns, so that one that came since is null in them. Nothing is read
until a sink asks for it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from runnel.internal_names import internal_column
from runnel.lake.diff.file_delta import Delta, delta, rows_apart
from runnel.lake.diff.row_delta import Compared, common, counts
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.scan.duckdb_connection import connect, told
from runnel.lake.scan.duckdb_types import duckdb_type, quoted
from runnel.lake.scan.scan_sql import rows_sql

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.flow_state.sink_backlog import Step
    from runnel.lake.iceberg.manifests import Entry
    from runnel.lake.store import Store
    from runnel.names import TableName

BATCH_ROWS = 122_880
_COUNT = internal_column("count")
Tell = Callable[[int, int], None]
"""Is told how many rows of how many have gone out."""


@dataclass
class Change:
    """One step of a sink. `key` is the same whenever this step is delivered again.

    Where it is whole every row came. `connection` has the views `came` and `gone`
    once they are asked for, and `whole` with all rows of the newer version.
    """

    store: "Store"
    table: "TableName"
    step: "Step"
    key: str
    connection: "duckdb.DuckDBPyConnection" = field(repr=False)
    tell: Tell = field(repr=False)
    _made: set[str] = field(default_factory=set, init=False, repr=False)  # DuckDB's own list of views is slow to ask

    @property
    def commit(self) -> str:
        """Return the id of the commit that made it."""
        return self.step.commit.id

    @property
    def is_whole(self) -> bool:
        """Tell whether nothing is known of what the sink has."""
        return self.step.is_whole

    @property
    def is_dropped(self) -> bool:
        """Tell whether the table does not exist any more."""
        return self.step.after is None

    @cached_property
    def columns(self) -> tuple[Compared, ...]:
        """Return the columns of the table, those that it had where it is gone."""
        metadata = self._after or self._before
        return tuple(Compared(one.name, one.field_type) for one in metadata.schema().fields) if metadata else ()

    @cached_property
    def rows(self) -> int:
        """Return how many rows the table has now."""
        return counts(self.store, None, self.step.after.location)[0] if self.step.after else 0

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """Return how many rows came and went."""
        if self.is_whole:
            return self.rows, 0
        self._differ()
        came, gone = (self.one(f"SELECT count(*) FROM {side}") or (0,) for side in ("came", "gone"))
        return came[0], gone[0]

    def whole(self) -> str:
        """Return the name of the view of all rows."""
        if "whole" not in self._made:
            self._view("whole", rows_sql(self.store, self._after) if self._after else self._none())
        return "whole"

    def came(self) -> str:
        """Return the name of the view of the rows that came."""
        self._differ()
        return "came"

    def gone(self) -> str:
        """Return the name of the view of the rows that went; one that changed came and went."""
        self._differ()
        return "gone"

    def gone_keys(self, key: Sequence[str]) -> str:
        """Return a SELECT of the keys that no row has any more."""
        names = ", ".join(map(quoted, key))
        same = " AND ".join(f"gone.{quoted(name)} IS NOT DISTINCT FROM came.{quoted(name)}" for name in key)
        return f"SELECT DISTINCT {names} FROM {self.gone()} AS gone ANTI JOIN {self.came()} AS came ON {same}"

    def one(self, sql: str) -> tuple[Any, ...] | None:
        """Return the first row of a query."""
        return next(iter(self.connection.execute(sql).fetchall()), None)

    def reader(self, sql: str, total: int | None = None) -> "pa.RecordBatchReader":
        """Return the rows of a query, batch by batch; with `total` it is told how many of them have gone out."""
        import pyarrow as pa

        found = cast("pa.RecordBatchReader", self.connection.sql(sql).to_arrow_reader(BATCH_ROWS))
        if total is None:
            return found
        return pa.RecordBatchReader.from_batches(found.schema, self._counted(found, total))

    def _counted(self, rows: "Iterable[pa.RecordBatch]", total: int) -> "Iterator[pa.RecordBatch]":
        done = 0
        for batch in rows:
            yield batch
            done += batch.num_rows
            self.tell(done, total)

    def read(self, sql: str) -> "pa.Table":
        """Return the rows of a query."""
        return cast("pa.Table", self.connection.sql(sql).to_arrow_table())

    @cached_property
    def _after(self) -> "TableMetadata | None":
        return load(self.store, self.step.after.location) if self.step.after else None

    @cached_property
    def _before(self) -> "TableMetadata | None":
        return load(self.store, self.step.before.location) if self.step.before and not self.is_whole else None

    def _differ(self) -> None:
        """Make the views `came` and `gone`. Only files that differ are read; rows that both have cancel out."""
        if "came" in self._made:
            return
        if self._before is None or self.is_whole:
            self._view("gone", self._none())
            self._view("came", f"FROM {self.whole()}")
            return
        before = self.step.before.location if self.step.before else None
        after = self.step.after.location if self.step.after else None
        found = delta(self.store, before, after)
        if self._after is not None and found.appends_only and self._before.table_uuid == self._after.table_uuid:
            self._view("gone", self._none())
            self._view("came", rows_sql(self.store, self._after, found.added))
            return
        self._net(before, after, found)

    def _net(self, before: str | None, after: str | None, found: Delta) -> None:
        old, new = rows_apart(self.store, before, after, found)
        keys = ", ".join(column.as_key for column in self.columns)
        shown = ", ".join(f"any_value({quoted(one.name)}) AS {quoted(one.name)}" for one in self.columns)
        total = f"sum({quoted(_COUNT)})"
        self.connection.execute(
            f"CREATE TEMP TABLE net AS SELECT {total} AS {quoted(_COUNT)}, {shown} FROM ({self._sides(old, new)})"
            f" GROUP BY {keys} HAVING {total} <> 0"
        )
        names = ", ".join(quoted(column.name) for column in self.columns)
        for side, sign in (("gone", "-"), ("came", "")):
            number = f"{sign}{quoted(_COUNT)}"
            times = f"SELECT *, unnest(range(CAST({number} AS BIGINT))) FROM net WHERE {number} > 0"
            self._view(side, f"SELECT {names} FROM ({times})")

    def _sides(self, old: "Sequence[Entry]", new: "Sequence[Entry]") -> str:
        """Return a SELECT of the newer version's rows, counted 1, and of the older one's, counted -1."""
        assert self._before is not None
        newer = self._after or self._before
        before = {now.field_id: was.name for was, now in common(self._before, newer)}
        cast = [
            f"CAST({quoted(before[one.field_id]) if one.field_id in before else 'NULL'} AS"
            f" {duckdb_type(one.field_type)}) AS {quoted(one.name)}"
            for one in newer.schema().fields
        ]
        names = [quoted(one.name) for one in newer.schema().fields]
        sides = [f"SELECT -1 AS {quoted(_COUNT)}, {', '.join(cast)} FROM ({rows_sql(self.store, self._before, old)})"]
        if self._after is not None:
            rows = rows_sql(self.store, self._after, new)
            sides.append(f"SELECT 1 AS {quoted(_COUNT)}, {', '.join(names)} FROM ({rows})")
        return " UNION ALL ".join(sides)

    def _none(self) -> str:
        shown = [f"CAST(NULL AS {duckdb_type(one.kind)}) AS {quoted(one.name)}" for one in self.columns]
        return f"SELECT {', '.join(shown) or 'NULL AS nothing'} WHERE false"

    def _view(self, name: str, sql: str) -> None:
        self.connection.execute(f"CREATE TEMP VIEW {name} AS {sql}")
        self._made.add(name)


@contextmanager
def opened(store: "Store", table: "TableName", step: "Step", key: str, tell: Tell) -> Iterator[Change]:
    """Open a change."""
    with told(), connect() as connection:
        yield Change(store, table, step, key, connection, tell)
