"""How the table of a task with slices is parted: by its slices where each is large enough for files of its own."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from runnel.lake.slices import estimate, is_aligned
from runnel.plan.slices import expressions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from runnel.declare.flow import Task
    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.plan.facts import Head
    from runnel.run.work import Work

_LEAST_BYTES = 1 << 20  # of input for each slice: below that, more files cost more than they save
_MOST = 10_000
_TYPES = ("date", "integer", "long", "string", "boolean")


def partition_of(
    work: "Work", task: "Task", inputs: "Mapping[TableName, Head]", base: "Head | None", schema: "StructType"
) -> tuple[str, ...]:
    """Return how to part a task's table when all of it is written."""
    if task.options.partition or not task.options.by:
        return task.options.partition
    kinds = {field.name.lower(): field.dataType.typeName() for field in schema.fields}
    if any(kinds.get(name.strip("`").lower()) not in _TYPES for name in task.options.by):
        return ()
    if base is not None and is_aligned(work.store, base.location, task.options.by):
        return task.options.by
    for table in task.reads:
        texts = expressions(task, table, work.facts.columns(table, inputs[table]))
        size = work.facts.size(table, inputs[table])
        if texts is None or size is None:
            continue
        number = estimate(work.store, inputs[table].location, [text.strip("`") for text in texts])
        if number and number <= _MOST and size.bytes >= number * _LEAST_BYTES:
            return task.options.by
    return ()


def kept_partition(store: "Store", task: "Task", base: "Head") -> tuple[str, ...]:
    """Return how to part a task's table when some of it is written: as it is."""
    if task.options.partition:
        return task.options.partition
    return task.options.by if is_aligned(store, base.location, task.options.by) else ()
