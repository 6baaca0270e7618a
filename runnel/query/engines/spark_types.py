"""The types of Spark's results, and the types in which Parquet files store them. Pure."""

from dataclasses import replace
from typing import Any

from runnel.declare.model.column_types import SIMPLE, SparkType, parse_json_type

TEXT = SparkType("string")


def parse_result_type(type_json: Any) -> SparkType | None:
    """Parse Spark's JSON form of a type; None if there is no Arrow type for it, such as for intervals.

    >>> str(parse_result_type({"type": "array", "elementType": "integer", "containsNull": True}))
    'array<int>'
    """
    data_type = parse_json_type(type_json)
    return data_type if _has_arrow_type(data_type) else None


def _has_arrow_type(data_type: SparkType) -> bool:
    if data_type.is_atomic:
        return data_type.kind in (*SIMPLE, "decimal", "void") and data_type.scale >= 0
    return all(_has_arrow_type(child.type) for child in data_type.children)


def to_storable_type(data_type: SparkType) -> SparkType:
    """Return the type in which Parquet stores values; Parquet has no void type."""
    if data_type.kind == "void":
        return TEXT
    children = tuple(replace(child, type=to_storable_type(child.type)) for child in data_type.children)
    return replace(data_type, children=children)
