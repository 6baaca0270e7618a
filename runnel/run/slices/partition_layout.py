"""Choose the partitioning of a task's table by slices, so that replacing some of them does not rewrite the table.

Partitions are the slices themselves if each is large enough for files of its own; else buckets of several slices.
"""

from typing import TYPE_CHECKING

from runnel.lake.diff.changed_slices import estimate_slices, find_bucket_layout, is_aligned
from runnel.plan.slices import slice_expressions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from runnel.declare.model.flow import Task
    from runnel.lake.store import Store
    from runnel.model.table_version import TableVersion
    from runnel.run.task_context import TaskRun

_LEAST_BYTES = 1 << 20  # of input per slice: below that, more files cost more than they save
_MOST = 10_000
_TYPES = ("date", "integer", "long", "string", "boolean")
_BUCKET_BYTES, _FEW_BUCKETS = 4 << 20, 16  # of input per bucket, up to so many buckets
_LARGE_BUCKET_BYTES, _MOST_BUCKETS = 64 << 20, 1024  # the same for more buckets
_LASTING = 4  # a table keeps its buckets until the right number differs by this factor


def choose_partition(task_run: "TaskRun", base: "TableVersion | None", schema: "StructType") -> tuple[str, ...]:
    """Return the partitioning of a task's table for a full write."""
    run_context, task, inputs = task_run.run_context, task_run.task, task_run.inputs
    if task.options.partition or not task.options.by:
        return task.options.partition
    kinds = {field.name.lower(): field.dataType.typeName() for field in schema.fields}
    if any(kinds.get(name.strip("`").lower()) not in _TYPES for name in task.options.by):
        return ()
    if base is not None and is_aligned(run_context.store, base.location, task.options.by):
        return task.options.by
    largest = 0
    for table in task.input_tables:
        texts = slice_expressions(task, table, run_context.facts.columns(table, inputs[table]))
        size = run_context.facts.size(table, inputs[table])
        if texts is None or size is None:
            continue
        largest = max(largest, size.bytes)
        slice_count = estimate_slices(run_context.store, inputs[table].location, [text.strip("`") for text in texts])
        if slice_count and slice_count <= _MOST and size.bytes >= slice_count * _LEAST_BYTES:
            return task.options.by
    if kinds[task.options.by[0].strip("`").lower()] == "boolean":
        return ()
    bucket_count, existing_buckets = (
        _choose_bucket_count(largest),
        find_bucket_layout(run_context.store, base.location, task.options.by[0]) if base else None,
    )
    if (
        existing_buckets is not None
        and bucket_count < existing_buckets.bucket_count * _LASTING
        and existing_buckets.bucket_count < bucket_count * _LASTING
    ):
        bucket_count = existing_buckets.bucket_count
    return _make_bucket_partition(task, bucket_count) if bucket_count > 1 else ()


def read_partition(store: "Store", task: "Task", base: "TableVersion") -> tuple[str, ...]:
    """Return the current partitioning of a task's table, which a partial write keeps."""
    if task.options.partition:
        return task.options.partition
    if is_aligned(store, base.location, task.options.by):
        return task.options.by
    existing_buckets = find_bucket_layout(store, base.location, task.options.by[0])
    return _make_bucket_partition(task, existing_buckets.bucket_count) if existing_buckets else ()


def _make_bucket_partition(task: "Task", bucket_count: int) -> tuple[str, ...]:
    return (f"bucket({bucket_count}, {task.options.by[0]})",)


def _choose_bucket_count(size_bytes: int) -> int:
    """Return the number of buckets for a table that is computed from so many bytes.

    >>> [_choose_bucket_count(size << 20) for size in (3, 8, 50, 900, 4_000, 10**7)]
    [1, 2, 8, 16, 32, 1024]
    """
    bucket_count = max(
        min(size_bytes // _BUCKET_BYTES, _FEW_BUCKETS), min(size_bytes // _LARGE_BUCKET_BYTES, _MOST_BUCKETS), 1
    )
    return 1 << bucket_count.bit_length() - 1
