"""How Iceberg's types, names and paths are written in DuckDB's SQL."""

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

_SIMPLE: dict[Any, str] = {
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


class Unscannable(RunnelError):
    """DuckDB can't read these files faithfully; Spark can."""

    def __init__(self, what: str) -> None:
        super().__init__("SCAN_NEEDS_SPARK", what, fix="ask Spark: runnel query --engine spark")


def duckdb_type(kind: IcebergType) -> str:
    """Return the DuckDB type that holds an Iceberg type.

    >>> duckdb_type(ListType(1, DecimalType(9, 2)))
    'DECIMAL(9,2)[]'
    """
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, ListType):
        return f"{duckdb_type(kind.element_type)}[]"
    if isinstance(kind, MapType):
        return f"MAP({duckdb_type(kind.key_type)}, {duckdb_type(kind.value_type)})"
    if isinstance(kind, StructType):
        fields = ", ".join(f"{quoted(field.name)} {duckdb_type(field.field_type)}" for field in kind.fields)
        return f"STRUCT({fields})"
    found = _SIMPLE.get(type(kind))
    if found is None:
        raise Unscannable(f"DuckDB has no faithful form of the type {kind}")
    return found


def quoted(name: str) -> str:
    """Return a DuckDB identifier.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a DuckDB string."""
    return "'" + text.replace("'", "''") + "'"


def exact_path(path: str) -> str:
    """Return a DuckDB string that names one file, though its path may look like a pattern.

    >>> exact_path("/lake/[a]/b*.parquet")
    "'/lake/[[]a]/b[*].parquet'"
    """
    return literal("".join(f"[{character}]" if character in "*?[" else character for character in path))
