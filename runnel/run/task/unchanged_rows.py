"""Tell whether inputs have the rows that they had, though their files were written anew, in another order say.

Looks through the files that differ, in this process, where they are small; no Spark.
"""

from typing import TYPE_CHECKING

from pyiceberg.types import DoubleType, FloatType, IcebergType, ListType, MapType, StructType

from runnel.errors import RunnelError
from runnel.lake.diff.row_delta import counts
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.scan.duckdb_types import Unscannable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnel.names import TableName
    from runnel.plan.facts import Head, Movement
    from runnel.plan.steps import Step
    from runnel.run.run_context import Work

_MOST_BYTES = 64 << 20


def have_same_rows(work: "Work", step: "Step", inputs: "Mapping[TableName, Head]") -> bool:
    """Tell whether no input that changed since the result that a step builds on has other rows."""
    base = step.base
    if base is None or not step.changed or step.analyse or step.asked is not None:
        return False
    moves = [work.facts.movement(table, base.inputs[table], inputs[table]) for table in step.changed]
    if not all(map(_may_be_same, moves)) or sum(move.bytes_added + move.bytes_removed for move in moves) > _MOST_BYTES:
        return False
    return all(_is_same(work, base.inputs[table].location, inputs[table].location) for table in step.changed)


def _may_be_same(move: "Movement") -> bool:
    is_schema = move.columns_added or move.columns_changed
    return move.is_known and not move.deletes and not is_schema and move.rows_added == move.rows_removed


def _is_same(work: "Work", before: str, after: str) -> bool:
    if any(_holds_numbers_inside(field.field_type) for field in load(work.store, after).schema().fields):
        return False  # 0.0 and -0.0 are told apart in columns only
    try:
        return counts(work.store, before, after, _MOST_BYTES) == (0, 0)
    except (Unscannable, RunnelError):
        return False


def _holds_numbers_inside(kind: IcebergType) -> bool:
    """Tell whether a list, map or struct holds floating-point numbers."""
    inner: list[IcebergType] = []
    if isinstance(kind, ListType):
        inner = [kind.element_type]
    elif isinstance(kind, MapType):
        inner = [kind.key_type, kind.value_type]
    elif isinstance(kind, StructType):
        inner = [field.field_type for field in kind.fields]
    return any(isinstance(one, DoubleType | FloatType) or _holds_numbers_inside(one) for one in inner)
