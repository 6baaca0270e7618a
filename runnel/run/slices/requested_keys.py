"""Add the keys of requested days to the keys of changed slices."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runnel.model.slice_key import union_keys
from runnel.plan.date_range import RequestedDays
from runnel.run.slices.keys import SliceKeys, build_key_frame, make_part_names
from runnel.run.slices.replace import list_slice_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.declare.model.flow import Task
    from runnel.names import TableName
    from runnel.run.task_context import TaskContext


def add_requested_keys(
    context: "TaskContext",
    task: "Task",
    keys: SliceKeys,
    requested_days: RequestedDays,
    slice_expressions: "Mapping[TableName, tuple[str, ...]]",
) -> SliceKeys:
    """Return keys together with those of the requested days.

    `slice_expressions` give the slice of a row in each sliced input. If slices have more columns than the day, all
    slices count that an input or the table has in these days.
    """
    by_names = [name.strip("`").lower() for name in task.options.by]
    position = by_names.index((requested_days.column or "").lower())
    days = SliceKeys(len(requested_days.days.dates), tuple((day,) for day in requested_days.days.dates))
    if len(by_names) == 1 and keys.values is not None and days.values is not None:
        all_values = union_keys([keys.values, days.values])
        return SliceKeys(len(all_values), all_values)
    identifiers = {table: context.identifier(table) for table in (task.table, *slice_expressions)}
    expressions_by_table = {task.table: list_slice_columns(task), **slice_expressions}
    frames = [
        _select_keys_in_days(context.session.table(identifiers[table]), days, expressions_by_table[table], position)
        for table in expressions_by_table
    ]
    if keys.frame is not None or keys.values:
        frames.append(build_key_frame(context.session, keys, frames[0].schema))
    key_rows = frames[0]
    for frame in frames[1:]:
        key_rows = key_rows.union(frame)
    distinct_keys = key_rows.distinct().localCheckpoint()  # the table that it reads will be written
    if keys.frame is not None:
        keys.frame.unpersist()
    return SliceKeys(distinct_keys.count(), frame=distinct_keys)


def _select_keys_in_days(rows: "DataFrame", days: SliceKeys, expressions: Sequence[str], position: int) -> "DataFrame":
    """Return the keys of rows whose day is one of the requested days."""
    select_list = [
        f"({text}) AS `{name}`" for text, name in zip(expressions, make_part_names(len(expressions)), strict=True)
    ]
    condition = days.condition([expressions[position]])
    assert condition is not None
    return rows.where(condition).selectExpr(*select_list).distinct()
