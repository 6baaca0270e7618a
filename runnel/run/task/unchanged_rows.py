"""Return whether inputs have the same rows as before although their files were rewritten, in another order say.

Reads the files that differ in this process if they are small; uses no Spark.
"""

from typing import TYPE_CHECKING

from pyiceberg.types import DoubleType, FloatType, IcebergType, ListType, MapType, StructType

from runnel.errors import RunnelError
from runnel.lake.diff.row_delta import count_changed_rows
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.scan.duckdb_types import DuckdbScanError

if TYPE_CHECKING:
    from runnel.model.change_size import ChangeSize
    from runnel.run.run_context import RunContext
    from runnel.run.task_context import TaskRun

_MOST_BYTES = 64 << 20


def have_same_rows(task_run: "TaskRun") -> bool:
    """Return whether all inputs that changed since the base result of a step still have the same rows."""
    run_context, step, inputs = task_run.run_context, task_run.step, task_run.inputs
    base = step.base
    if base is None or not step.changed or step.analyse or step.requested_days is not None:
        return False
    change_sizes = [run_context.facts.change_size(table, base.inputs[table], inputs[table]) for table in step.changed]
    if (
        not all(map(_may_have_same_rows, change_sizes))
        or sum(change_size.bytes_added + change_size.bytes_removed for change_size in change_sizes) > _MOST_BYTES
    ):
        return False
    return all(
        _has_same_rows(run_context, base.inputs[table].location, inputs[table].location) for table in step.changed
    )


def _may_have_same_rows(change_size: "ChangeSize") -> bool:
    has_schema_change = change_size.columns_added or change_size.columns_changed
    return (
        change_size.is_known
        and not change_size.deletes
        and not has_schema_change
        and change_size.rows_added == change_size.rows_removed
    )


def _has_same_rows(run_context: "RunContext", before: str, after: str) -> bool:
    if any(_has_nested_floats(field.field_type) for field in load_metadata(run_context.store, after).schema().fields):
        return False  # 0.0 and -0.0 are distinguished in top-level columns only
    try:
        return count_changed_rows(run_context.store, before, after, _MOST_BYTES) == (0, 0)
    except (DuckdbScanError, RunnelError):
        return False


def _has_nested_floats(data_type: IcebergType) -> bool:
    """Return whether a list, map or struct holds floating-point numbers."""
    inner_types: list[IcebergType] = []
    if isinstance(data_type, ListType):
        inner_types = [data_type.element_type]
    elif isinstance(data_type, MapType):
        inner_types = [data_type.key_type, data_type.value_type]
    elif isinstance(data_type, StructType):
        inner_types = [field.field_type for field in data_type.fields]
    return any(
        isinstance(inner_type, DoubleType | FloatType) or _has_nested_floats(inner_type) for inner_type in inner_types
    )
