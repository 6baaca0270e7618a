"""Types of Spark's answers: what they are, and how private files hold them. Pure."""

from typing import Any

from runnel.errors import Mistake
from runnel.query.data_types import DataType, array, spark_type

TEXT = DataType("string")


def type_of(kind: Any) -> DataType | None:
    """Return the type behind Spark's JSON form of it, or None where there is no Arrow form, as of intervals.

    >>> str(type_of({"type": "array", "elementType": "integer", "containsNull": True}))
    'array<int>'
    """
    if isinstance(kind, str):
        try:
            return spark_type(kind)
        except Mistake:
            return None
    if kind["type"] == "array":
        element = type_of(kind["elementType"])
        return array(element) if element else None
    if kind["type"] == "map":
        pair = type_of(kind["keyType"]), type_of(kind["valueType"])
        return DataType("map", children=(pair[0], pair[1])) if pair[0] and pair[1] else None
    if kind["type"] == "struct":
        found = [type_of(field["type"]) for field in kind["fields"]]
        children = tuple(child for child in found if child)
        names = tuple(str(field["name"]) for field in kind["fields"])
        return DataType("struct", children=children, names=names) if len(children) == len(names) else None
    return None


def storable(kind: DataType) -> DataType:
    """Return the type in which Parquet holds it; it has no type for nothing but nulls."""
    if kind.kind == "void":
        return TEXT
    return DataType(
        kind.kind, kind.precision, kind.scale, tuple(storable(child) for child in kind.children), kind.names
    )


def ddl(kind: DataType) -> str:
    """Return a type as Spark's CAST takes it, whatever its fields are called.

    >>> ddl(DataType("struct", children=(TEXT,), names=("a b",)))
    'struct<`a b`: string>'
    """
    if kind.kind == "struct":
        fields = zip(kind.names, kind.children, strict=True)
        return "struct<" + ", ".join(f"`{name.replace('`', '``')}`: {ddl(child)}" for name, child in fields) + ">"
    return f"{kind.kind}<{', '.join(map(ddl, kind.children))}>" if kind.children else str(kind)
