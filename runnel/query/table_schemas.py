"""Convert the schemas of the lake's tables to Spark SQL types. Pure."""

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

from runnel.lake.scan.duckdb_types import DuckdbScanError
from runnel.query.data_types import DataType, array_type, decimal

_SIMPLE_TYPES: dict[type[IcebergType], str] = {
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
TEXT_TYPES = (UUIDType, TimeType)
"""Columns of these types are strings in Spark SQL, or not supported; DuckDB returns them as text."""


def to_spark_types(schema: Schema) -> dict[str, DataType]:
    """Return the columns of a table with the types that Spark gives them, in order."""
    return {field.name: _convert_column_type(field.field_type) for field in schema.fields}


def _convert_column_type(kind: IcebergType) -> DataType:
    return DataType("string") if isinstance(kind, TEXT_TYPES) else _convert_type(kind)


def _convert_type(kind: IcebergType) -> DataType:
    if isinstance(kind, DecimalType):
        return decimal(kind.precision, kind.scale)
    if isinstance(kind, ListType):
        return array_type(_convert_type(kind.element_type))
    if isinstance(kind, MapType):
        return DataType("map", children=(_convert_type(kind.key_type), _convert_type(kind.value_type)))
    if isinstance(kind, StructType):
        children = tuple(_convert_type(field.field_type) for field in kind.fields)
        return DataType("struct", children=children, names=tuple(field.name for field in kind.fields))
    type_name = _SIMPLE_TYPES.get(type(kind))
    if type_name is None:
        raise DuckdbScanError(f"DuckDB has no faithful form of the type {kind}")
    return DataType(type_name)
