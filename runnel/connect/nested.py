"""Fit what is inside a JSON value to the types inside an array, a struct or a map, leaf by leaf. Pure."""

from collections.abc import Iterator

from pyiceberg.types import IcebergType, ListType, MapType, StringType, StructType, UnknownType

from runnel.connect.kinds import fits
from runnel.connect.text import rule
from runnel.lake.duckdb_types import literal


class Unfit(Exception):
    """The value has another shape than the type."""


def leaves_fit(sql: str, source: IcebergType, kind: IcebergType) -> str | None:
    """Return the SQL of whether every leaf of a JSON value is one of its type; None where all are.

    Raises Unfit where the shapes differ: an array here, a struct there.
    """
    conditions = []
    for path, leaf in _leaves(source, kind, "$"):
        way = rule("leaf", leaf)
        if way is None or way.valid is None:
            continue
        found = f"json_extract_string({sql}, {literal(path)})"
        many = found if "*" in path else f"[{found}]"
        conditions.append(f"len(list_filter({many}, lambda leaf : {way.bad})) = 0")
    return " AND ".join(conditions) or None


def _leaves(source: IcebergType, kind: IcebergType, path: str) -> Iterator[tuple[str, IcebergType]]:
    """Yield the paths at which a value is not of its type already, with the type."""
    if isinstance(source, UnknownType) or fits(source, kind):
        return
    if isinstance(kind, ListType) and isinstance(source, ListType):
        yield from _leaves(source.element_type, kind.element_type, f"{path}[*]")
    elif isinstance(kind, StructType) and isinstance(source, StructType):
        wanted = {field.name: field.field_type for field in kind.fields}
        for field in source.fields:
            if field.name not in wanted:
                raise Unfit
            yield from _leaves(field.field_type, wanted[field.name], f"{path}.{_key(field.name)}")
    elif isinstance(kind, MapType) and isinstance(source, StructType) and isinstance(kind.key_type, StringType):
        for field in source.fields:
            yield from _leaves(field.field_type, kind.value_type, f"{path}.{_key(field.name)}")
    elif kind.is_primitive and source.is_primitive and rule("leaf", kind) is not None:
        yield path, kind
    else:
        raise Unfit


def _key(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
