"""Split rows by the partitions of a table, with PyIceberg's own transforms and no compiled extra."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import IcebergType

_MICROS = {"hour": 3_600_000_000, "day": 86_400_000_000}


def split_by_partition(spec: PartitionSpec, schema: Schema, table: pa.Table) -> Iterator[tuple[PartitionKey, pa.Table]]:
    """Yield the rows of each partition, in their order."""
    names = [f"p{position}" for position in range(len(spec.fields))]
    values = [_compute_partition_values(field, schema, table) for field in spec.fields]
    rows = pa.array(np.arange(table.num_rows))
    keys = pa.table([*values, rows], names=[*names, "row"])
    groups = keys.group_by(names, use_threads=False).aggregate([("row", "list")])
    row_lists = groups.column("row_list").combine_chunks()
    for position, key in enumerate(groups.select(names).to_pylist()):
        key_values = [PartitionFieldValue(field, key[name]) for field, name in zip(spec.fields, names, strict=True)]
        partition_rows = table if len(groups) == 1 else table.take(row_lists[position].values)
        yield PartitionKey(key_values, spec, schema), partition_rows


def _compute_partition_values(field: PartitionField, schema: Schema, table: pa.Table) -> Any:
    path = schema.find_column_name(field.source_id) or ""
    column = table.column(path) if path in table.column_names else _read_nested_column(table, path)
    kind = schema.find_field(field.source_id).field_type
    return apply_transform(field.transform, kind, column.combine_chunks())


def _read_nested_column(table: pa.Table, path: str) -> Any:
    first, *rest = path.split(".")
    column: Any = table.column(first)
    for name in rest:
        column = pc.struct_field(column, name)
    return column


def apply_transform(transform: Transform[Any, Any], kind: IcebergType, values: Any) -> Any:
    """Apply a partition transform to values; nulls stay null.

    >>> from pyiceberg.types import DateType
    >>> apply_transform(MonthTransform(), DateType(), pa.array([-1, 31], pa.date32())).to_pylist()
    [-1, 1]
    """
    if isinstance(transform, IdentityTransform):
        return values
    if isinstance(transform, YearTransform | MonthTransform):
        years = pc.subtract(pc.year(values), 1970)
        if isinstance(transform, YearTransform):
            return years.cast(pa.int32())
        return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(values), 1)).cast(pa.int32())
    if isinstance(transform, DayTransform) and pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    if isinstance(transform, DayTransform | HourTransform):
        return _floor_to_unit(values, _MICROS["day" if isinstance(transform, DayTransform) else "hour"])
    transform_value = transform.transform(kind)
    encoded = values.dictionary_encode()  # a value that occurs often is transformed once
    transformed_values = [transform_value(value) for value in encoded.dictionary.to_pylist()]
    result_type = encoded.dictionary.type if transformed_values and not isinstance(transformed_values[0], int) else None
    return (
        pa.array(transformed_values, result_type).take(encoded.indices)
        if transformed_values
        else pa.nulls(len(values), pa.int32())
    )


def _floor_to_unit(values: Any, unit: int) -> Any:
    """Return whole units since the epoch, rounded down also before it."""
    micros = values.cast(pa.int64())
    floored = np.floor_divide(micros.fill_null(0).to_numpy(zero_copy_only=False), unit)
    return pa.array(floored.astype(np.int32), mask=micros.is_null().to_numpy(zero_copy_only=False))
