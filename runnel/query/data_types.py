"""The types of values in queries, with their names in DuckDB. Pure."""

from functools import lru_cache

from runnel.declare.model.column_types import SparkType, parse_type
from runnel.errors import Mistake
from runnel.names import quote_value

_DUCKDB_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    "void": "INTEGER",
}
BOOLEAN, INT, BIGINT = SparkType("boolean"), SparkType("int"), SparkType("bigint")
DOUBLE, STRING, DATE, TIMESTAMP = SparkType("double"), SparkType("string"), SparkType("date"), SparkType("timestamp")
VOID = SparkType("void")


def format_duckdb_type(data_type: SparkType) -> str:
    """Return the DuckDB type that holds the values of a type.

    >>> format_duckdb_type(parse_spark_type("array<struct<a:int,b:decimal(12,2)>>"))
    'STRUCT("a" INTEGER, "b" DECIMAL(12,2))[]'
    """
    if data_type.kind == "decimal":
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    if data_type.is_atomic:
        return _DUCKDB_TYPES[data_type.kind]
    child_types = [format_duckdb_type(child.type) for child in data_type.children]
    if data_type.kind == "array":
        return f"{child_types[0]}[]"
    if data_type.kind == "map":
        return f"MAP({child_types[0]}, {child_types[1]})"
    names = (quote_identifier(child.name) for child in data_type.children)
    return f"STRUCT({', '.join(f'{name} {kind}' for name, kind in zip(names, child_types, strict=True))})"


def quote_identifier(name: str) -> str:
    """Return `name` as a DuckDB identifier.

    >>> quote_identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=1024)
def parse_spark_type(text: str) -> SparkType:
    """Parse a type that a query names.

    >>> str(parse_spark_type("array<decimal(12, 2)>"))
    'array<decimal(12,2)>'
    """
    try:
        return parse_type(text)
    except Mistake:
        what = f"{quote_value(text)} is not a type"
        raise Mistake("SQL_TYPE", what, fix="write a Spark type, such as decimal(12,2)") from None
