"""Arrow forms of Spark's types, so that an answer looks the same whichever engine gave it. Pure."""

import base64
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from runnel.query.data_types import DataType

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a column.

    >>> from runnel.query.data_types import spark_type
    >>> arrow_type(spark_type("decimal(12,2)"))
    Decimal128Type(decimal128(12, 2))
    """
    if kind.kind == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.kind == "array":
        return pa.list_(arrow_type(kind.children[0]))
    if kind.kind == "map":
        return pa.map_(arrow_type(kind.children[0]), arrow_type(kind.children[1]))
    if kind.kind == "struct":
        return pa.struct(
            [pa.field(name, arrow_type(child)) for name, child in zip(kind.names, kind.children, strict=True)]
        )
    return _SIMPLE[kind.kind]


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch under the names and in the types of `schema`, column by column."""
    columns: list[Any] = []
    for column, field in zip(batch.columns, schema, strict=True):
        if pa.types.is_null(field.type):
            columns.append(pa.nulls(batch.num_rows))
        else:
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch as Python values."""
    if batch.num_columns == 0:
        return iter([()] * batch.num_rows)
    return zip(*(_values(column) for column in batch.columns), strict=True)


def json_rows_of(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Yield the rows of a batch as values that JSON can hold."""
    shapers = [_shaper(field.type) for field in batch.schema]
    for row in rows_of(batch):
        yield [None if value is None else shape(value) for value, shape in zip(row, shapers, strict=True)]


def _values(column: Any) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # a time that Python can't hold: before year 1 or after 9999
        return list(pc.cast(column, pa.string()).to_pylist())
    return found


def _shaper(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_map(kind):
        key, item = _shaper(kind.key_type), _nullable(_shaper(kind.item_type))
        if pa.types.is_string(kind.key_type):
            return lambda pairs: {name: item(value) for name, value in pairs}
        return lambda pairs: [[key(name), item(value)] for name, value in pairs]
    if pa.types.is_list(kind):
        element = _nullable(_shaper(kind.value_type))
        return lambda values: [element(value) for value in values]
    if pa.types.is_struct(kind):
        fields = {field.name: _nullable(_shaper(field.type)) for field in kind}
        return lambda values: {name: fields[name](value) for name, value in values.items()}
    return json_value


def _nullable(shape: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else shape(value)


def json_value(value: Any) -> Any:
    """Return a single value as JSON holds it: times in ISO, decimals as strings, bytes in base64.

    >>> json_value(Decimal("1.50")), json_value(float("nan")), json_value(b"hi")
    ('1.50', 'NaN', 'aGk=')
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return str(value) if isinstance(value, timedelta) else value
