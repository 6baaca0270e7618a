"""Schemas of the lake's tables as Spark SQL sees them. Pure."""

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from runnel.lake.scan.scan_sql import Unscannable
from runnel.query.data_types import DataType, array, decimal

_SIMPLE: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
    StringType: "string",
    BinaryType: "binary",
    FixedType: "binary",
}
AS_TEXT = (UUIDType, TimeType)
"""Columns of these types are text in Spark SQL, or nothing at all; DuckDB shows them as text."""


def column_types(schema: Schema) -> dict[str, DataType]:
    """Return the columns of a table with the types that Spark gives them, in order."""
    return {field.name: _column(field.field_type) for field in schema.fields}


def _column(kind: IcebergType) -> DataType:
    return DataType("string") if isinstance(kind, AS_TEXT) else _inner(kind)


def _inner(kind: IcebergType) -> DataType:
    if isinstance(kind, DecimalType):
        return decimal(kind.precision, kind.scale)
    if isinstance(kind, ListType):
        return array(_inner(kind.element_type))
    if isinstance(kind, MapType):
        return DataType("map", children=(_inner(kind.key_type), _inner(kind.value_type)))
    if isinstance(kind, StructType):
        children = tuple(_inner(field.field_type) for field in kind.fields)
        return DataType("struct", children=children, names=tuple(field.name for field in kind.fields))
    found = _SIMPLE.get(type(kind))
    if found is None:
        raise Unscannable(f"DuckDB has no faithful form of the type {kind}")
    return DataType(found)
