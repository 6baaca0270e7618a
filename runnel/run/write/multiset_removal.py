"""Remove the rows of a task's table that it made of input rows which are gone, where it has no key: as a multiset.

As many copies of each row go as the task makes of what was removed. Rows that can't be compared exactly are refused.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.declare.model.column_types import SparkType
from runnel.declare.model.flow import Task
from runnel.internal_names import internal_column
from runnel.lake.leases import slots
from runnel.run import content_tally
from runnel.run.content_tally import NOTHING, Tally, quoted
from runnel.run.write.row_removal import total_rows, unmatched
from runnel.run.write.target_layout import columns_of
from runnel.run.write.write_frame import measured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.run.task_context import Context

_NUMBER, _REMOVED, _HELD, _COPY = (internal_column(word) for word in ("number", "lost", "rows", "times"))
_FLOATS = ("double", "float")
_EXACT = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "long", "byte", "short", "decimal"),
    *("string", "binary", "date", "timestamp", "timestamp_ntz"),
)


class Incomparable(Exception):
    """The rows to remove can't be found in the table. The text says why."""


@dataclass(frozen=True)
class Remainder:
    """A table without rows: its version, the copies that have to be written again, and the tally of what went."""

    location: str
    rewritten: "DataFrame"
    removed: Tally = NOTHING


def without_copies(context: "Context", task: Task, removed: "DataFrame", base: str) -> Remainder:
    """Return a version of a task's table with as many copies fewer of each row as `removed` has.

    Every copy of these rows goes, since equal rows can't be told apart; those that have to stay are to be written
    again. Raises Incomparable where a row is in the table less often than in `removed`, or values can't be compared.
    """
    from pyspark.sql import functions as F

    columns = columns_of(removed.schema)
    for column in columns:
        if column.type.kind not in _FLOATS and not _is_exact(column.type):
            raise Incomparable(f"the values of its column {column.name} can't be compared exactly")
    names = [quoted(column.name) for column in columns]
    # The text of a number tells -0.0 from 0.0, which Spark takes for equal; NaN is equal to itself.
    texts = {
        quoted(column.name): quoted(internal_column("text", place))
        for place, column in enumerate(columns)
        if column.type.kind in _FLOATS
    }
    as_text = [f"string({name}) AS {text}" for name, text in texts.items()]
    keys = [texts.get(name, name) for name in names]
    numbers = [F.first(F.col(name)).alias(name.strip("`").replace("``", "`")) for name in texts]
    counted = removed.selectExpr(*names, *as_text).groupBy(*keys).agg(F.expr("int(count(1))").alias(_REMOVED), *numbers)
    rows = counted.withColumn(_NUMBER, F.monotonically_increasing_id()).localCheckpoint()

    slots.place(context.store.db, context.slot, {task.table: base})
    table = context.session.table(context.identifier(task.table)).selectExpr(*names, *as_text)
    equal = " AND ".join(f"held.{key} <=> gone.{key}" for key in keys)
    held = table.alias("held").join(rows.alias("gone"), F.expr(equal)).groupBy(f"gone.`{_NUMBER}`")
    copies = held.agg(F.count(F.lit(1)).alias(_HELD)).alias("copies")
    joined = rows.alias("gone").join(copies, F.expr(f"gone.`{_NUMBER}` = copies.`{_NUMBER}`"), "left")
    counts = (f"gone.`{_REMOVED}` AS `{_REMOVED}`", f"int(coalesce(copies.`{_HELD}`, 0)) AS `{_HELD}`")
    both = joined.selectExpr(*(f"gone.{name}" for name in dict.fromkeys([*names, *keys])), *counts).localCheckpoint()
    if not both.where(f"`{_HELD}` < `{_REMOVED}`").isEmpty():
        raise Incomparable("its table lacks rows that the task makes of the rows that were removed")

    def repeated(times: str) -> "DataFrame":
        several = both.where(f"{times} > 0").selectExpr(*names, f"explode(sequence(1, {times})) AS `{_COPY}`")
        return several.selectExpr(*names)

    gone = content_tally.read(measured(repeated(f"`{_HELD}`"), columns, columns, ()))
    target = context.identifier(task.table)
    at = {texts.get(name, name): f"string({target}.{name})" if name in texts else f"{target}.{name}" for name in names}
    location = unmatched(context, task.table, base, both.selectExpr(*keys), at) if gone.rows else base
    if total_rows(context.store, base) - total_rows(context.store, location) != gone.rows:
        raise Incomparable("other rows of its table were taken for those that were removed")
    return Remainder(location, repeated(f"`{_HELD}` - `{_REMOVED}`"), gone)


def _is_exact(kind: SparkType) -> bool:
    """Tell whether values of a type are equal for Spark exactly where they are the same: no maps, no numbers inside."""
    if kind.kind in ("struct", "array"):
        return all(_is_exact(child.type) for child in kind.children)
    return kind.kind.partition("(")[0] in _EXACT
