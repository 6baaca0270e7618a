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

from runnel.declare.model.column_types import SparkType, array_type, decimal, map_type, struct_type
from runnel.lake.scan.duckdb_types import DuckdbScanError

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


def to_spark_types(schema: Schema) -> dict[str, SparkType]:
    """Return the columns of a table with the types that Spark gives them, in order."""
    return {field.name: _convert_column_type(field.field_type) for field in schema.fields}


def _convert_column_type(kind: IcebergType) -> SparkType:
    return SparkType("string") if isinstance(kind, TEXT_TYPES) else _convert_type(kind)


def _convert_type(kind: IcebergType) -> SparkType:
    if isinstance(kind, DecimalType):
        return decimal(kind.precision, kind.scale)
    if isinstance(kind, ListType):
        return array_type(_convert_type(kind.element_type))
    if isinstance(kind, MapType):
        return map_type(_convert_type(kind.key_type), _convert_type(kind.value_type))
    if isinstance(kind, StructType):
        return struct_type((field.name, _convert_type(field.field_type)) for field in kind.fields)
    type_name = _SIMPLE_TYPES.get(type(kind))
    if type_name is None:
        raise DuckdbScanError(f"DuckDB has no exact equivalent of the type {kind}")
    return SparkType(type_name)
