"""Write Iceberg types, names and paths as DuckDB SQL."""

from typing import Any

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

from runnel.errors import RunnelError

_PRIMITIVE_TYPES: dict[Any, str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "DATE",
    TimeType: "TIME",
    TimestampType: "TIMESTAMP",
    TimestamptzType: "TIMESTAMPTZ",
    StringType: "VARCHAR",
    UUIDType: "UUID",
    BinaryType: "BLOB",
    FixedType: "BLOB",
}


class DuckdbScanError(RunnelError):
    """DuckDB can't read these files faithfully; Spark can."""

    def __init__(self, what: str) -> None:
        super().__init__("SCAN_NEEDS_SPARK", what, fix="use Spark: runnel query --engine spark")


def to_duckdb_type(kind: IcebergType) -> str:
    """Return the DuckDB type that holds an Iceberg type.

    >>> to_duckdb_type(ListType(1, DecimalType(9, 2)))
    'DECIMAL(9,2)[]'
    """
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, ListType):
        return f"{to_duckdb_type(kind.element_type)}[]"
    if isinstance(kind, MapType):
        return f"MAP({to_duckdb_type(kind.key_type)}, {to_duckdb_type(kind.value_type)})"
    if isinstance(kind, StructType):
        fields = ", ".join(
            f"{quote_identifier(field.name)} {to_duckdb_type(field.field_type)}" for field in kind.fields
        )
        return f"STRUCT({fields})"
    type_name = _PRIMITIVE_TYPES.get(type(kind))
    if type_name is None:
        raise DuckdbScanError(f"DuckDB has no exact equivalent of the type {kind}")
    return type_name


def quote_identifier(name: str) -> str:
    """Return a name as a quoted DuckDB identifier.

    >>> quote_identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Return a text as a DuckDB string literal."""
    return "'" + text.replace("'", "''") + "'"


def quote_exact_path(path: str) -> str:
    """Return a DuckDB string literal that matches exactly one file, even if its path looks like a glob.

    >>> quote_exact_path("/lake/[a]/b*.parquet")
    "'/lake/[[]a]/b[*].parquet'"
    """
    return quote_literal("".join(f"[{character}]" if character in "*?[" else character for character in path))
