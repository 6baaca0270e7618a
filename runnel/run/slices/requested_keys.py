"""The keys of slices that somebody asked for by their days, together with those that changed."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runnel.plan.date_range import Asked
from runnel.plan.slices import union
from runnel.run.slices.keys import Keys, frame_of, part_names
from runnel.run.slices.replace import by_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.declare.model.flow import Task
    from runnel.names import TableName
    from runnel.run.task_context import Context


def with_asked(
    context: "Context", task: "Task", keys: Keys, asked: Asked, sliced: "Mapping[TableName, tuple[str, ...]]"
) -> Keys:
    """Return keys with those of the days that are asked for; `sliced` names the slices of each input that has them.

    Where slices are known by more than the day, those are taken that an input or the table has in these days.
    """
    by = [name.strip("`").lower() for name in task.options.by]
    place = by.index((asked.column or "").lower())
    days = Keys(len(asked.days.dates), tuple((day,) for day in asked.days.dates))
    if len(by) == 1 and keys.values is not None and days.values is not None:
        every = union([keys.values, days.values])
        return Keys(len(every), every)
    names = {table: context.identifier(table) for table in (task.table, *sliced)}
    texts = {task.table: by_columns(task), **sliced}
    frames = [_in_days(context.session.table(names[table]), days, texts[table], place) for table in texts]
    if keys.frame is not None or keys.values:
        frames.append(frame_of(context.session, keys, frames[0].schema))
    found = frames[0]
    for frame in frames[1:]:
        found = found.union(frame)
    kept = found.distinct().localCheckpoint()  # the table that it reads is about to be written
    if keys.frame is not None:
        keys.frame.unpersist()
    return Keys(kept.count(), frame=kept)


def _in_days(rows: "DataFrame", days: Keys, expressions: Sequence[str], place: int) -> "DataFrame":
    """Return the keys of rows whose day is among those that are asked for."""
    parts = [f"({text}) AS `{name}`" for text, name in zip(expressions, part_names(len(expressions)), strict=True)]
    condition = days.condition([expressions[place]])
    assert condition is not None
    return rows.where(condition).selectExpr(*parts).distinct()
