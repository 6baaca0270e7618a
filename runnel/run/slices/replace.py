"""Put the new rows of slices where the old ones were.

By whole files where files are of one slice; with the other rows of their buckets, or of a small table, written once
more; else row by row.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Task
from runnel.declare.sql.literals import column, literal
from runnel.internal_names import internal_column
from runnel.lake.diff.change_size import size
from runnel.lake.diff.changed_slices import buckets, is_aligned
from runnel.lake.iceberg.snapshot_descent import RUN
from runnel.lake.leases import slots
from runnel.names import TableName
from runnel.plan.facts import Head
from runnel.run import content_tally
from runnel.run.checks.row_checks import JSON_OPTIONS
from runnel.run.content_tally import NOTHING, Tally, quoted
from runnel.run.slices.keys import Keys, frame_of, outside, part_names, restrict
from runnel.run.write.row_removal import total_rows, unmatched
from runnel.run.write.target_layout import columns_of
from runnel.run.write.temporary_tables import placed
from runnel.run.write.write_frame import measured, news, observed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from runnel.run.task_context import Context

_SMALL_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20
_SLICES = internal_column("slices")


def by_files(context: "Context", task: Task, keys: Keys, base: str) -> str | None:
    """Return the condition under which whole files of a version are replaced; None where slices share files."""
    condition = keys.condition(by_columns(task)) if keys.is_exact else None
    return condition if condition and is_aligned(context.store, base, task.options.by) else None


def is_small(context: "Context", base: str) -> bool:
    """Tell whether writing all of a version again costs less than taking some rows out of it."""
    return size(context.store, base).bytes <= _SMALL_BYTES


def by_buckets(context: "Context", task: Task, keys: Keys, base: str) -> str | None:
    """Return the condition for the buckets of a version that the slices are in; None where it has none."""
    found = buckets(context.store, base, task.options.by[0])
    if found is None or not keys.values:
        return None
    chosen = {found.of(value) for value in {key[0] for key in keys.values}}
    numbers = ", ".join(str(one) for one in sorted(one for one in chosen if one is not None))
    name = by_columns(task)[0]
    inside = f"`{context.slot.name}`.system.bucket({found.number}, {name}) IN ({numbers})"
    return " OR ".join([inside] * bool(numbers) + [f"{name} IS NULL"] * (None in chosen))


@dataclass(frozen=True)
class Others:
    """Rows that are in none of the slices, and what went into choosing them: a tally, asked for once they are written.

    `before` is given how many rows the table says that they were.
    """

    rows: "DataFrame"
    before: Callable[[int], Tally]


@contextmanager
def others(context: "Context", task: Task, keys: Keys, base: str, where: str | None = None) -> "Iterator[Others]":
    """Yield the rows of a version of a task's table that are in none of the slices; wherever the table is meanwhile.

    Only rows that fulfil `where` count, if given.
    """
    from pyspark.sql import Observation

    name = TableName(task.table.layer, f"{task.table.name}__before")
    cores = context.session.sparkContext.defaultParallelism  # of a small table Spark would make one piece
    piece = max(_PIECE_BYTES, min(_SMALL_BYTES, size(context.store, base).bytes) // cores + 1)
    reader = context.session.read.option("split-size", piece).option("file-open-cost", 1)
    with placed(context, {name: base}):
        rows = reader.table(context.identifier(name))
        if where is None:
            yield Others(outside(rows, keys, by_columns(task)), lambda count: NOTHING)
            return
        rows = rows.where(where)
        columns, observation = columns_of(rows.schema), Observation()

        def before(count: int) -> Tally:
            found = news(observation) if count else None
            if found is None or found[content_tally.ROWS] != count:
                found = measured(rows, columns, columns, ())
            return content_tally.read(found)

        yield Others(outside(observed(rows, observation, columns, columns, ()), keys, by_columns(task)), before)


def held(context: "Context", task: Task, keys: Keys, base: str) -> tuple[Tally, int]:
    """Return what the slices hold in a version of a task's table, and how many of them there are in it."""
    from pyspark.sql import functions as F

    slots.place(context.store.db, context.slot, {task.table: base})
    rows = restrict(context.session.table(context.identifier(task.table)), keys, by_columns(task))
    hashed = rows.selectExpr("*", *content_tally.hashes(columns_of(rows.schema)))
    # Not count(DISTINCT): beside other sums it takes Spark two more shuffles. Very many are only about right.
    key = f"xxhash64({', '.join(part for name in by_columns(task) for part in (name, f'isnull({name})'))})"
    number = f"size(collect_set({key}))" if keys.values is not None else f"approx_count_distinct({key})"
    wanted = content_tally.sums() | {_SLICES: number}
    found = hashed.agg(*(F.expr(sql).alias(name) for name, sql in wanted.items())).collect()[0].asDict()
    return content_tally.read(found), int(found[_SLICES])


def take_out(context: "Context", task: Task, keys: Keys, base: str, rows: "DataFrame") -> str:
    """Return the version of a task's table without the rows of the slices; `rows` are those that will be there."""
    return _without(context, task.table, base, keys, by_columns(task), rows.select(*by_columns(task)).schema)


def take_out_aside(context: "Context", task: Task, keys: Keys, aside: Head | None, rows: "DataFrame") -> Head | None:
    """Return the quarantine table without the rows that came from the slices."""
    if aside is None or task.quarantine is None or not total_rows(context.store, aside.location):
        return aside
    kinds = rows.select(*by_columns(task)).schema
    columns = columns_of(kinds)
    schema = literal(", ".join(f"{quoted(one.name)} {one.type}" for one in columns))
    inside = tuple(f"from_json(raw, {schema}, {JSON_OPTIONS}).{quoted(one.name)}" for one in columns)
    kept = _without(context, task.quarantine, aside.location, keys, inside, kinds)
    return aside if kept == aside.location else Head(kept, kept)


def by_columns(task: Task) -> tuple[str, ...]:
    """Return the columns that name the slices of a task's table, as SQL."""
    return tuple(column(name) for name in task.options.by)


def _without(
    context: "Context", table: "TableName", base: str, keys: Keys, expressions: tuple[str, ...], kinds: "StructType"
) -> str:
    if not keys.is_exact:
        gone = frame_of(context.session, keys, kinds)
        pairs = dict(zip((f"`{name}`" for name in part_names(len(expressions))), expressions, strict=True))
        return unmatched(context, table, base, gone, pairs)
    slots.place(context.store.db, context.slot, {table: base})
    # A delete takes no options of a write; the setting is the session's, which serves one run at a time.
    context.session.conf.set(f"spark.sql.iceberg.snapshot-property.{RUN}", context.run)
    # Where files alone can judge the condition, Iceberg drops whole files and pays no heed to that setting.
    unjudged = f"coalesce(length(string({expressions[0]})), 0) >= 0"
    context.session.sql(f"DELETE FROM {context.identifier(table)} WHERE {keys.condition(expressions)} AND {unjudged}")
    location = slots.location(context.store.db, context.slot, table)
    assert location is not None
    return base if total_rows(context.store, location) == total_rows(context.store, base) else location
