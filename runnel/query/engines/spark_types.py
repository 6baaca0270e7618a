"""The types of Spark's results, and the types in which Parquet files store them. Pure."""

from typing import Any

from runnel.errors import Mistake
from runnel.query.data_types import DataType, array_type, parse_spark_type

TEXT = DataType("string")


def parse_json_type(kind: Any) -> DataType | None:
    """Parse Spark's JSON form of a type; None if there is no Arrow type for it, such as for intervals.

    >>> str(parse_json_type({"type": "array", "elementType": "integer", "containsNull": True}))
    'array<int>'
    """
    if isinstance(kind, str):
        try:
            return parse_spark_type(kind)
        except Mistake:
            return None
    if kind["type"] == "array":
        element = parse_json_type(kind["elementType"])
        return array_type(element) if element else None
    if kind["type"] == "map":
        pair = parse_json_type(kind["keyType"]), parse_json_type(kind["valueType"])
        return DataType("map", children=(pair[0], pair[1])) if pair[0] and pair[1] else None
    if kind["type"] == "struct":
        field_types = [parse_json_type(field["type"]) for field in kind["fields"]]
        children = tuple(child for child in field_types if child)
        names = tuple(str(field["name"]) for field in kind["fields"])
        return DataType("struct", children=children, names=names) if len(children) == len(names) else None
    return None


def to_storable_type(kind: DataType) -> DataType:
    """Return the type in which Parquet stores values; Parquet has no void type."""
    if kind.kind == "void":
        return TEXT
    return DataType(
        kind.kind, kind.precision, kind.scale, tuple(to_storable_type(child) for child in kind.children), kind.names
    )


def format_ddl(kind: DataType) -> str:
    """Return a type in the syntax of Spark's CAST, with quoted field names.

    >>> format_ddl(DataType("struct", children=(TEXT,), names=("a b",)))
    'struct<`a b`: string>'
    """
    if kind.kind == "struct":
        fields = zip(kind.names, kind.children, strict=True)
        return (
            "struct<" + ", ".join(f"`{name.replace('`', '``')}`: {format_ddl(child)}" for name, child in fields) + ">"
        )
    return f"{kind.kind}<{', '.join(map(format_ddl, kind.children))}>" if kind.children else str(kind)
