"""Convert Spark's types and values to Arrow, so that a result looks the same from both engines. Pure."""

import base64
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from runnel.declare.model.column_types import SparkType

_SIMPLE_TYPES: dict[str, pa.DataType] = {
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


def to_arrow_type(kind: SparkType) -> pa.DataType:
    """Return the Arrow type of a column.

    >>> from runnel.query.data_types import parse_spark_type
    >>> to_arrow_type(parse_spark_type("decimal(12,2)"))
    Decimal128Type(decimal128(12, 2))
    """
    if kind.kind == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.kind == "array":
        return pa.list_(to_arrow_type(kind.children[0].type))
    if kind.kind == "map":
        return pa.map_(to_arrow_type(kind.children[0].type), to_arrow_type(kind.children[1].type))
    if kind.kind == "struct":
        return pa.struct([pa.field(child.name, to_arrow_type(child.type)) for child in kind.children])
    return _SIMPLE_TYPES[kind.kind]


def cast_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the names and types of `schema`, column by column."""
    columns: list[Any] = []
    for column, field in zip(batch.columns, schema, strict=True):
        if pa.types.is_null(field.type):
            columns.append(pa.nulls(batch.num_rows))
        else:
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch as Python values."""
    if batch.num_columns == 0:
        return iter([()] * batch.num_rows)
    return zip(*(_to_python_values(column) for column in batch.columns), strict=True)


def to_json_rows(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Yield the rows of a batch as values that JSON can hold."""
    converters = [_make_json_converter(field.type) for field in batch.schema]
    for row in to_rows(batch):
        yield [None if value is None else convert(value) for value, convert in zip(row, converters, strict=True)]


def _to_python_values(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # a time that Python can't represent: before year 1 or after 9999
        return list(pc.cast(column, pa.string()).to_pylist())
    return values


def _make_json_converter(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_map(kind):
        convert_key, convert_item = (
            _make_json_converter(kind.key_type),
            _skip_nulls(_make_json_converter(kind.item_type)),
        )
        if pa.types.is_string(kind.key_type):
            return lambda pairs: {name: convert_item(value) for name, value in pairs}
        return lambda pairs: [[convert_key(name), convert_item(value)] for name, value in pairs]
    if pa.types.is_list(kind):
        convert_element = _skip_nulls(_make_json_converter(kind.value_type))
        return lambda values: [convert_element(value) for value in values]
    if pa.types.is_struct(kind):
        field_converters = {field.name: _skip_nulls(_make_json_converter(field.type)) for field in kind}
        return lambda values: {name: field_converters[name](value) for name, value in values.items()}
    return to_json_value


def _skip_nulls(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def to_json_value(value: Any) -> Any:
    """Convert a single value to JSON: times in ISO, decimals as strings, bytes in base64.

    >>> to_json_value(Decimal("1.50")), to_json_value(float("nan")), to_json_value(b"hi")
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
