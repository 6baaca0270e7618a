"""Tell values of rows apart, floating point to a tolerance: Spark SQL for columns of any type. Pure: makes text."""

from runnel.declare.model.column_types import SparkType
from runnel.run.content_tally import quoted

_RELATIVE = {"double": "1e-9D", "float": "2.5e-7D"}  # a float has no more than seven digits
_NOTHING = "1e-12D"  # below this a sum of opposites is zero


def is_loose(kind: SparkType) -> bool:
    """Tell whether values of a type are compared with a tolerance."""
    return kind.kind in _RELATIVE or any(is_loose(child.type) for child in kind.children)


def plain(value: str, kind: SparkType, depth: int = 0) -> str:
    """Return SQL of a value that rows can be grouped and put in order by: maps become their entries, sorted.

    >>> plain("a", SparkType("double"))
    'a'
    """
    inner = f"p{depth}"
    if not _has_map(kind):
        return value
    if kind.kind == "array":
        return f"transform({value}, {inner} -> {plain(inner, kind.children[0].type, depth + 1)})"
    if kind.kind == "map":
        item = plain(f"{inner}.value", kind.children[1].type, depth + 1)
        return f"array_sort(transform(map_entries({value}), {inner} -> struct({inner}.key AS key, {item} AS value)))"
    fields = [f"{plain(f'{value}.{name}', of, depth)} AS {name}" for name, of in _fields(kind)]
    return f"CASE WHEN {value} IS NOT NULL THEN struct({', '.join(fields)}) END"


def close(one: str, other: str, kind: SparkType, depth: int = 0) -> str:
    """Return SQL of whether two values, as `plain` makes them, are equal within the tolerance; never null."""
    if not is_loose(kind):
        return f"{one} <=> {other}"
    return f"({one} <=> {other} OR coalesce({_inside(one, other, kind, depth)}, false))"


def _inside(one: str, other: str, kind: SparkType, depth: int) -> str:
    if kind.kind in _RELATIVE:
        most = f"greatest({_RELATIVE[kind.kind]} * greatest(abs({one}), abs({other})), {_NOTHING})"
        return f"abs({one} - {other}) < {most}"
    if kind.kind == "struct":
        parts = [close(f"{one}.{name}", f"{other}.{name}", of, depth) for name, of in _fields(kind)]
        return " AND ".join([f"{one} IS NOT NULL AND {other} IS NOT NULL", *parts])
    x, y, of = f"x{depth}", f"y{depth}", kind.children[-1].type
    entry = f"{x}.key <=> {y}.key AND {close(f'{x}.value', f'{y}.value', of, depth + 1)}"
    each = entry if kind.kind == "map" else close(x, y, of, depth + 1)
    return f"size({one}) = size({other}) AND forall(zip_with({one}, {other}, ({x}, {y}) -> {each}), {x} -> {x})"


def _has_map(kind: SparkType) -> bool:
    return kind.kind == "map" or any(_has_map(child.type) for child in kind.children)


def _fields(kind: SparkType) -> list[tuple[str, SparkType]]:
    return [(quoted(child.name), child.type) for child in kind.children]
