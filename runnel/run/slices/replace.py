"""Replace the rows of slices in a task's table.

By whole files if no file has several slices; by rewriting the other rows of their buckets, or of a small table; else
row by row.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Task
from runnel.declare.sql.literals import format_literal, quote_column
from runnel.internal_names import internal_column
from runnel.lake.diff.change_size import read_table_size
from runnel.lake.diff.changed_slices import find_bucket_layout, is_aligned
from runnel.lake.iceberg.snapshot_descent import RUN_PROPERTY
from runnel.lake.leases import slots
from runnel.model.table_version import TableVersion
from runnel.names import TableName
from runnel.run import content_tally
from runnel.run.checks.row_checks import JSON_OPTIONS
from runnel.run.content_tally import EMPTY_TALLY, ContentTally, quote_name
from runnel.run.slices.keys import SliceKeys, build_key_frame, exclude_slices, make_part_names, restrict_to_slices
from runnel.run.write.row_removal import count_rows, remove_matching_rows
from runnel.run.write.target_layout import list_columns
from runnel.run.write.temporary_tables import place_temporarily
from runnel.run.write.write_frame import measure_rows, observe_rows, wait_for_observation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from runnel.run.task_context import TaskContext

_SMALL_BYTES = 16 << 20
_PIECE_BYTES = 1 << 20
_SLICES = internal_column("slices")


def find_file_condition(context: "TaskContext", task: Task, keys: SliceKeys, base: str) -> str | None:
    """Return the condition that selects whole files to replace; None if slices share files."""
    condition = keys.condition(list_slice_columns(task)) if keys.is_exact else None
    return condition if condition and is_aligned(context.store, base, task.options.by) else None


def is_small_table(context: "TaskContext", base: str) -> bool:
    """Return whether rewriting a version costs less than deleting some of its rows."""
    return read_table_size(context.store, base).bytes <= _SMALL_BYTES


def find_bucket_condition(context: "TaskContext", task: Task, keys: SliceKeys, base: str) -> str | None:
    """Return the condition that selects the buckets of the slices; None if the version has no buckets."""
    table_buckets = find_bucket_layout(context.store, base, task.options.by[0])
    if table_buckets is None or not keys.values:
        return None
    bucket_numbers = {table_buckets.bucket_of(value) for value in {key[0] for key in keys.values}}
    numbers_sql = ", ".join(
        str(bucket_number)
        for bucket_number in sorted(bucket_number for bucket_number in bucket_numbers if bucket_number is not None)
    )
    name = list_slice_columns(task)[0]
    bucket_sql = f"`{context.slot.name}`.system.bucket({table_buckets.bucket_count}, {name}) IN ({numbers_sql})"
    return " OR ".join([bucket_sql] * bool(numbers_sql) + [f"{name} IS NULL"] * (None in bucket_numbers))


@dataclass(frozen=True)
class RetainedRows:
    """The rows that are in none of the slices, and a function for the tally of all rows that were read for them.

    Call `tally_before` after the rows were written, with the row count of the files that they replace.
    """

    rows: "DataFrame"
    tally_before: Callable[[int], ContentTally]


@contextmanager
def open_retained_rows(
    context: "TaskContext", task: Task, keys: SliceKeys, base: str, condition: str | None = None
) -> "Iterator[RetainedRows]":
    """Yield the rows of the version `base` that are in none of the slices, whichever version the slot has now.

    With a `condition`, only the rows that match it are read.
    """
    from pyspark.sql import Observation

    name = TableName(task.table.layer, f"{task.table.name}__before")
    cores = context.session.sparkContext.defaultParallelism  # else Spark reads a small table as one split
    piece = max(_PIECE_BYTES, min(_SMALL_BYTES, read_table_size(context.store, base).bytes) // cores + 1)
    reader = context.session.read.option("split-size", piece).option("file-open-cost", 1)
    with place_temporarily(context, {name: base}):
        rows = reader.table(context.identifier(name))
        if condition is None:
            yield RetainedRows(exclude_slices(rows, keys, list_slice_columns(task)), lambda _: EMPTY_TALLY)
            return
        rows = rows.where(condition)
        columns, observation = list_columns(rows.schema), Observation()

        def tally_before(count: int) -> ContentTally:
            values = wait_for_observation(observation) if count else None
            if values is None or values[content_tally.ROWS] != count:
                values = measure_rows(rows, columns, columns, ())
            return content_tally.read(values)

        yield RetainedRows(
            exclude_slices(observe_rows(rows, observation, columns, columns, ()), keys, list_slice_columns(task)),
            tally_before,
        )


def measure_slices(context: "TaskContext", task: Task, keys: SliceKeys, base: str) -> tuple[ContentTally, int]:
    """Return the tally of the slices in a version of a task's table, and how many of them exist there."""
    from pyspark.sql import functions as F

    slots.place_tables(context.store.db, context.slot, {task.table: base})
    rows = restrict_to_slices(context.session.table(context.identifier(task.table)), keys, list_slice_columns(task))
    hashed = rows.selectExpr("*", *content_tally.build_row_hashes(list_columns(rows.schema)))
    # Not count(DISTINCT): with other sums it takes Spark two more shuffles. Very many are counted approximately.
    key_sql = f"xxhash64({', '.join(part for name in list_slice_columns(task) for part in (name, f'isnull({name})'))})"
    count_sql = f"size(collect_set({key_sql}))" if keys.values is not None else f"approx_count_distinct({key_sql})"
    aggregates = content_tally.build_sums() | {_SLICES: count_sql}
    values = hashed.agg(*(F.expr(sql).alias(name) for name, sql in aggregates.items())).collect()[0].asDict()
    return content_tally.read(values), int(values[_SLICES])


def remove_slices(context: "TaskContext", task: Task, keys: SliceKeys, base: str, rows: "DataFrame") -> str:
    """Return the version of a task's table without the rows of the slices; `rows` are the new rows, for their types."""
    columns = list_slice_columns(task)
    return _remove_slice_rows(context, task.table, base, _SliceFilter(keys, columns, rows.select(*columns).schema))


def remove_quarantined_slices(
    context: "TaskContext", task: Task, keys: SliceKeys, quarantine_head: TableVersion | None, rows: "DataFrame"
) -> TableVersion | None:
    """Return the quarantine table without the rows of the slices."""
    if (
        quarantine_head is None
        or task.quarantine_table is None
        or not count_rows(context.store, quarantine_head.location)
    ):
        return quarantine_head
    key_schema = rows.select(*list_slice_columns(task)).schema
    columns = list_columns(key_schema)
    schema = format_literal(
        ", ".join(f"{quote_name(key_column.name)} {key_column.type.schema_text}" for key_column in columns)
    )
    raw_keys = tuple(
        f"from_json(raw, {schema}, {JSON_OPTIONS}).{quote_name(key_column.name)}" for key_column in columns
    )
    slice_filter = _SliceFilter(keys, raw_keys, key_schema)
    location = _remove_slice_rows(context, task.quarantine_table, quarantine_head.location, slice_filter)
    return quarantine_head if location == quarantine_head.location else TableVersion(location, location)


def list_slice_columns(task: Task) -> tuple[str, ...]:
    """Return the `by` columns of a task's table, as SQL."""
    return tuple(quote_column(name) for name in task.options.by)


@dataclass(frozen=True)
class _SliceFilter:
    """The rows of slices: their keys, the expressions that give the key of a row, and the types of these."""

    keys: SliceKeys
    expressions: tuple[str, ...]
    key_schema: "StructType"


def _remove_slice_rows(context: "TaskContext", table: "TableName", base: str, slice_filter: _SliceFilter) -> str:
    keys, expressions = slice_filter.keys, slice_filter.expressions
    if not keys.is_exact:
        key_rows = build_key_frame(context.session, keys, slice_filter.key_schema)
        pairs = dict(zip((f"`{name}`" for name in make_part_names(len(expressions))), expressions, strict=True))
        return remove_matching_rows(context, table, base, key_rows, pairs)
    slots.place_tables(context.store.db, context.slot, {table: base})
    # A delete takes no write options; the setting belongs to the session, which serves one run at a time.
    context.session.conf.set(f"spark.sql.iceberg.snapshot-property.{RUN_PROPERTY}", context.run)
    # If file metadata decides the condition, Iceberg drops whole files and ignores that setting.
    row_condition = f"coalesce(length(string({expressions[0]})), 0) >= 0"
    context.session.sql(
        f"DELETE FROM {context.identifier(table)} WHERE {keys.condition(expressions)} AND {row_condition}"
    )
    location = slots.read_location(context.store.db, context.slot, table)
    assert location is not None
    return base if count_rows(context.store, location) == count_rows(context.store, base) else location
