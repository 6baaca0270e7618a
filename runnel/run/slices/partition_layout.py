"""How the table of a task with slices is parted, so that a few of them are replaced without writing all of it again.

By the slices themselves where each is large enough for files of its own; else in buckets of some slices each.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from runnel.lake.diff.changed_slices import buckets, estimate, is_aligned
from runnel.plan.slices import expressions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from runnel.declare.model.flow import Task
    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.plan.facts import Head
    from runnel.run.run_context import Work

_LEAST_BYTES = 1 << 20  # of input for each slice: below that, more files cost more than they save
_MOST = 10_000
_TYPES = ("date", "integer", "long", "string", "boolean")
_BUCKET_BYTES, _FEW_BUCKETS = 4 << 20, 16  # of input for each bucket, up to so many buckets
_LARGE_BUCKET_BYTES, _MOST_BUCKETS = 64 << 20, 1024  # and beyond them
_LASTING = 4  # a table keeps its buckets until so many times more or fewer would be right


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
    largest = 0
    for table in task.reads:
        texts = expressions(task, table, work.facts.columns(table, inputs[table]))
        size = work.facts.size(table, inputs[table])
        if texts is None or size is None:
            continue
        largest = max(largest, size.bytes)
        number = estimate(work.store, inputs[table].location, [text.strip("`") for text in texts])
        if number and number <= _MOST and size.bytes >= number * _LEAST_BYTES:
            return task.options.by
    if kinds[task.options.by[0].strip("`").lower()] == "boolean":
        return ()
    wanted, found = _buckets_for(largest), buckets(work.store, base.location, task.options.by[0]) if base else None
    if found is not None and wanted < found.number * _LASTING and found.number < wanted * _LASTING:
        wanted = found.number
    return _in_buckets(task, wanted) if wanted > 1 else ()


def kept_partition(store: "Store", task: "Task", base: "Head") -> tuple[str, ...]:
    """Return how to part a task's table when some of it is written: as it is."""
    if task.options.partition:
        return task.options.partition
    if is_aligned(store, base.location, task.options.by):
        return task.options.by
    found = buckets(store, base.location, task.options.by[0])
    return _in_buckets(task, found.number) if found else ()


def _in_buckets(task: "Task", number: int) -> tuple[str, ...]:
    return (f"bucket({number}, {task.options.by[0]})",)


def _buckets_for(size: int) -> int:
    """Return into how many buckets a table goes that is made of so many bytes.

    >>> [_buckets_for(size << 20) for size in (3, 8, 50, 900, 4_000, 10**7)]
    [1, 2, 8, 16, 32, 1024]
    """
    number = max(min(size // _BUCKET_BYTES, _FEW_BUCKETS), min(size // _LARGE_BUCKET_BYTES, _MOST_BUCKETS), 1)
    return 1 << number.bit_length() - 1
