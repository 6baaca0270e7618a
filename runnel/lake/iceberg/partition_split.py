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


def split(spec: PartitionSpec, schema: Schema, table: pa.Table) -> Iterator[tuple[PartitionKey, pa.Table]]:
    """Yield the rows of each partition, in their order."""
    names = [f"p{position}" for position in range(len(spec.fields))]
    values = [_values(field, schema, table) for field in spec.fields]
    rows = pa.array(np.arange(table.num_rows))
    keys = pa.table([*values, rows], names=[*names, "row"])
    groups = keys.group_by(names, use_threads=False).aggregate([("row", "list")])
    found = groups.column("row_list").combine_chunks()
    for position, key in enumerate(groups.select(names).to_pylist()):
        parts = [PartitionFieldValue(field, key[name]) for field, name in zip(spec.fields, names, strict=True)]
        taken = table if len(groups) == 1 else table.take(found[position].values)
        yield PartitionKey(parts, spec, schema), taken


def _values(field: PartitionField, schema: Schema, table: pa.Table) -> Any:
    path = schema.find_column_name(field.source_id) or ""
    column = table.column(path) if path in table.column_names else _nested(table, path)
    kind = schema.find_field(field.source_id).field_type
    return transformed(field.transform, kind, column.combine_chunks())


def _nested(table: pa.Table, path: str) -> Any:
    first, *rest = path.split(".")
    column: Any = table.column(first)
    for name in rest:
        column = pc.struct_field(column, name)
    return column


def transformed(transform: Transform[Any, Any], kind: IcebergType, values: Any) -> Any:
    """Return what a transform makes of values, nulls staying null.

    >>> from pyiceberg.types import DateType
    >>> transformed(MonthTransform(), DateType(), pa.array([-1, 31], pa.date32())).to_pylist()
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
        return _floored(values, _MICROS["day" if isinstance(transform, DayTransform) else "hour"])
    apply = transform.transform(kind)
    encoded = values.dictionary_encode()  # a value that occurs often is transformed once
    made = [apply(value) for value in encoded.dictionary.to_pylist()]
    result = encoded.dictionary.type if made and not isinstance(made[0], int) else None
    return pa.array(made, result).take(encoded.indices) if made else pa.nulls(len(values), pa.int32())


def _floored(values: Any, unit: int) -> Any:
    """Return whole units since the epoch, rounded down also before it."""
    micros = values.cast(pa.int64())
    floored = np.floor_divide(micros.fill_null(0).to_numpy(zero_copy_only=False), unit)
    return pa.array(floored.astype(np.int32), mask=micros.is_null().to_numpy(zero_copy_only=False))
