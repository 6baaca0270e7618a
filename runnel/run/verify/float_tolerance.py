"""Build Spark SQL that compares values of any type, floating point within a tolerance. Pure: builds text."""

from runnel.declare.model.column_types import SparkType
from runnel.run.content_tally import quote_name

_RELATIVE = {"double": "1e-9D", "float": "2.5e-7D"}  # a float has no more than seven digits
_ABSOLUTE = "1e-12D"  # smaller differences count as zero


def has_tolerance(data_type: SparkType) -> bool:
    """Return whether values of a type are compared with a tolerance."""
    return data_type.kind in _RELATIVE or any(has_tolerance(child.type) for child in data_type.children)


def groupable_sql(value: str, data_type: SparkType, depth: int = 0) -> str:
    """Return SQL for a value that rows can be grouped and sorted by: maps become sorted arrays of entries.

    >>> groupable_sql("a", SparkType("double"))
    'a'
    """
    variable = f"p{depth}"
    if not _has_map(data_type):
        return value
    if data_type.kind == "array":
        return f"transform({value}, {variable} -> {groupable_sql(variable, data_type.children[0].type, depth + 1)})"
    if data_type.kind == "map":
        item = groupable_sql(f"{variable}.value", data_type.children[1].type, depth + 1)
        return (
            f"array_sort(transform(map_entries({value}), {variable} -> struct({variable}.key AS key, {item} AS value)))"
        )
    fields = [
        f"{groupable_sql(f'{value}.{name}', child_type, depth)} AS {name}"
        for name, child_type in _list_fields(data_type)
    ]
    return f"CASE WHEN {value} IS NOT NULL THEN struct({', '.join(fields)}) END"


def close_sql(left: str, right: str, data_type: SparkType, depth: int = 0) -> str:
    """Return SQL for whether two values of `groupable_sql` are equal within the tolerance; never null."""
    if not has_tolerance(data_type):
        return f"{left} <=> {right}"
    return f"({left} <=> {right} OR coalesce({_within_tolerance_sql(left, right, data_type, depth)}, false))"


def _within_tolerance_sql(left: str, right: str, data_type: SparkType, depth: int) -> str:
    if data_type.kind in _RELATIVE:
        most_difference = f"greatest({_RELATIVE[data_type.kind]} * greatest(abs({left}), abs({right})), {_ABSOLUTE})"
        return f"abs({left} - {right}) < {most_difference}"
    if data_type.kind == "struct":
        conditions = [
            close_sql(f"{left}.{name}", f"{right}.{name}", child_type, depth)
            for name, child_type in _list_fields(data_type)
        ]
        return " AND ".join([f"{left} IS NOT NULL AND {right} IS NOT NULL", *conditions])
    x, y, child_type = f"x{depth}", f"y{depth}", data_type.children[-1].type
    entry_condition = f"{x}.key <=> {y}.key AND {close_sql(f'{x}.value', f'{y}.value', child_type, depth + 1)}"
    element_condition = entry_condition if data_type.kind == "map" else close_sql(x, y, child_type, depth + 1)
    return (
        f"size({left}) = size({right}) AND forall(zip_with({left}, {right}, "
        f"({x}, {y}) -> {element_condition}), {x} -> {x})"
    )


def _has_map(data_type: SparkType) -> bool:
    return data_type.kind == "map" or any(_has_map(child.type) for child in data_type.children)


def _list_fields(data_type: SparkType) -> list[tuple[str, SparkType]]:
    return [(quote_name(child.name), child.type) for child in data_type.children]
