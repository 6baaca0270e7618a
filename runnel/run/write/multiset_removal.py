"""Remove from a task's table the rows that come from removed input rows, if the task has no key: as a multiset.

As many copies of each row are removed as the task makes of the removed input. Rows that can't be compared exactly are
refused.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.declare.model.column_types import SparkType
from runnel.declare.model.flow import Task
from runnel.internal_names import internal_column
from runnel.lake.leases import slots
from runnel.run import content_tally
from runnel.run.content_tally import EMPTY_TALLY, ContentTally, quote_name
from runnel.run.write.row_removal import count_rows, remove_matching_rows
from runnel.run.write.target_layout import list_columns
from runnel.run.write.write_frame import measure_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.run.task_context import TaskContext

_NUMBER, _REMOVED, _EXISTING, _COPY = (internal_column(word) for word in ("number", "lost", "rows", "times"))
_FLOATS = ("double", "float")
_EXACT = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "long", "byte", "short", "decimal"),
    *("string", "binary", "date", "timestamp", "timestamp_ntz"),
)


class IncomparableRows(Exception):
    """Raised if the rows to remove can't be found in the table. The text says why."""


@dataclass(frozen=True)
class CopyRemoval:
    """A version without the removed rows, the copies that must be written again, and the tally of what was removed."""

    location: str
    rewritten: "DataFrame"
    removed: ContentTally = EMPTY_TALLY


def remove_row_copies(context: "TaskContext", task: Task, removed: "DataFrame", base: str) -> CopyRemoval:
    """Return a version of a task's table with as many copies fewer of each row as `removed` has.

    All copies of these rows are removed, since equal rows can't be told apart; the caller writes those that stay
    again. Raises IncomparableRows if `removed` has more copies of a row than the table, or values can't be compared.
    """
    from pyspark.sql import functions as F

    columns = list_columns(removed.schema)
    for column in columns:
        if column.type.kind not in _FLOATS and not _is_exact(column.type):
            raise IncomparableRows(f"the values of its column {column.name} can't be compared exactly")
    names = [quote_name(column.name) for column in columns]
    # The text of a number tells -0.0 from 0.0, which Spark takes for equal; NaN is equal to itself.
    texts = {
        quote_name(column.name): quote_name(internal_column("text", position))
        for position, column in enumerate(columns)
        if column.type.kind in _FLOATS
    }
    as_text = [f"string({name}) AS {text}" for name, text in texts.items()]
    keys = [texts.get(name, name) for name in names]
    float_values = [F.first(F.col(name)).alias(name.strip("`").replace("``", "`")) for name in texts]
    removed_counts = (
        removed.selectExpr(*names, *as_text).groupBy(*keys).agg(F.expr("int(count(1))").alias(_REMOVED), *float_values)
    )
    rows = removed_counts.withColumn(_NUMBER, F.monotonically_increasing_id()).localCheckpoint()

    slots.place_tables(context.store.db, context.slot, {task.table: base})
    table = context.session.table(context.identifier(task.table)).selectExpr(*names, *as_text)
    match_condition = " AND ".join(f"held.{key} <=> gone.{key}" for key in keys)
    matches = table.alias("held").join(rows.alias("gone"), F.expr(match_condition)).groupBy(f"gone.`{_NUMBER}`")
    copies = matches.agg(F.count(F.lit(1)).alias(_EXISTING)).alias("copies")
    joined = rows.alias("gone").join(copies, F.expr(f"gone.`{_NUMBER}` = copies.`{_NUMBER}`"), "left")
    counts = (f"gone.`{_REMOVED}` AS `{_REMOVED}`", f"int(coalesce(copies.`{_EXISTING}`, 0)) AS `{_EXISTING}`")
    counted_rows = joined.selectExpr(
        *(f"gone.{name}" for name in dict.fromkeys([*names, *keys])), *counts
    ).localCheckpoint()
    if not counted_rows.where(f"`{_EXISTING}` < `{_REMOVED}`").isEmpty():
        raise IncomparableRows("its table lacks rows that the task makes of the rows that were removed")

    def repeat_rows(times: str) -> "DataFrame":
        several = counted_rows.where(f"{times} > 0").selectExpr(*names, f"explode(sequence(1, {times})) AS `{_COPY}`")
        return several.selectExpr(*names)

    removed_tally = content_tally.read(measure_rows(repeat_rows(f"`{_EXISTING}`"), columns, columns, ()))
    target = context.identifier(task.table)
    target_keys = {
        texts.get(name, name): f"string({target}.{name})" if name in texts else f"{target}.{name}" for name in names
    }
    location = (
        remove_matching_rows(context, task.table, base, counted_rows.selectExpr(*keys), target_keys)
        if removed_tally.rows
        else base
    )
    if count_rows(context.store, base) - count_rows(context.store, location) != removed_tally.rows:
        raise IncomparableRows("other rows of its table were taken for those that were removed")
    return CopyRemoval(location, repeat_rows(f"`{_EXISTING}` - `{_REMOVED}`"), removed_tally)


def _is_exact(data_type: SparkType) -> bool:
    """Return whether Spark compares values of a type exactly: no maps, no floating point inside."""
    if data_type.kind in ("struct", "array"):
        return all(_is_exact(child.type) for child in data_type.children)
    return data_type.kind.partition("(")[0] in _EXACT
