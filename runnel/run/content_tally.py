"""Identify the contents of tables by sums of hashes over their rows.

Pure: builds Spark SQL and reads its results. Sums don't depend on the order of rows, and the sums of appended rows are
added to the existing ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from runnel.declare.model.column_types import Column, SparkType
from runnel.internal_names import internal_column
from runnel.lake.diff.content_id import content_of_rows

ROWS, FIRST_HASH, SECOND_HASH = (
    internal_column(word) for word in ("rows", "one", "two")
)  # columns that exist only while rows are counted
_SALTS = {FIRST_HASH: 17, SECOND_HASH: 4099}
_WRAP = 2**64
_PART_BITS = 21
_PART = 2**_PART_BITS - 1
_STORED = {"tinyint": "int", "smallint": "int"}  # Iceberg has no smaller numbers


class ContentTally(NamedTuple):
    """How many rows, and the sums of two independent hashes over them."""

    rows: int = 0
    first_sum: int = 0
    second_sum: int = 0

    def plus(self, other: "ContentTally") -> "ContentTally":
        """Return the tally of the rows of both.

        >>> ContentTally(1, 5, 7).plus(ContentTally(2, 2**64 - 1, 1))
        ContentTally(rows=3, first_sum=4, second_sum=8)
        """
        return ContentTally(
            self.rows + other.rows,
            (self.first_sum + other.first_sum) % _WRAP,
            (self.second_sum + other.second_sum) % _WRAP,
        )

    def minus(self, other: "ContentTally") -> "ContentTally":
        """Return the tally of the rows that remain without those of another.

        >>> ContentTally(3, 4, 8).minus(ContentTally(2, 5, 1))
        ContentTally(rows=1, first_sum=18446744073709551615, second_sum=7)
        """
        return ContentTally(
            self.rows - other.rows,
            (self.first_sum - other.first_sum) % _WRAP,
            (self.second_sum - other.second_sum) % _WRAP,
        )


EMPTY_TALLY = ContentTally()


def build_content_id(columns: Sequence[Column], tally: ContentTally) -> str:
    """Return the content id of a table; the order of its columns does not matter."""
    return content_of_rows(
        ", ".join(sorted(f"{quote_name(column.name)} {format_stored_type(column.type)}" for column in columns)), *tally
    )


def build_row_hashes(columns: Sequence[Column]) -> list[str]:
    """Return SQL for the two hashes of a row, each with an alias."""
    parts = [
        part
        for column in sorted(columns, key=_get_name)
        for part in _list_hash_parts(quote_name(column.name), column.type)
    ]
    return [f"xxhash64({', '.join([str(salt), *parts])}) AS `{name}`" for name, salt in _SALTS.items()]


def build_sums() -> dict[str, str]:
    """Return the aggregates, by name, that a tally is read from.

    Each hash is summed in three parts: a sum of whole hashes would overflow, and decimals take twice the time. The
    parts don't overflow below 4 * 10**12 rows.
    """
    aggregates = {ROWS: "count(1)"}
    for name in _SALTS:
        column = f"`{name}`"
        aggregates[f"{name} high"] = f"sum(shiftright({column}, {2 * _PART_BITS}))"
        aggregates[f"{name} middle"] = f"sum(shiftright({column}, {_PART_BITS}) & {_PART})"
        aggregates[f"{name} low"] = f"sum({column} & {_PART})"
    return aggregates


def read(values: Mapping[str, Any]) -> ContentTally:
    """Return the tally from the values of `build_sums`."""

    def sum_parts(name: str) -> int:
        high, middle, low = (int(values[f"{name} {part}"] or 0) for part in ("high", "middle", "low"))
        total: int = (high << 2 * _PART_BITS) + (middle << _PART_BITS) + low
        return total % _WRAP

    return ContentTally(int(values[ROWS]), sum_parts(FIRST_HASH), sum_parts(SECOND_HASH))


def quote_name(name: str) -> str:
    """Return a column's name as SQL.

    >>> quote_name("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def _get_name(column: Column) -> str:
    return column.name


def _list_hash_parts(value: str, data_type: SparkType, depth: int = 0) -> list[str]:
    """Return the parts of a value that are hashed. Spark's hashes skip nulls, so `isnull` is hashed too."""
    variable = f"x{depth}"
    is_null = f"isnull({value})"
    if data_type.kind == "struct":
        fields = (
            _list_hash_parts(f"{value}.{quote_name(child.name)}", child.type, depth) for child in data_type.children
        )
        return [is_null, *(part for parts in fields for part in parts)]
    if data_type.kind == "array":
        return [
            f"transform({value}, {variable} -> "
            f"{_hash_sql(_list_hash_parts(variable, data_type.children[0].type, depth + 1))})",
            is_null,
        ]
    if data_type.kind == "map":  # its entries have no order
        key, item = (child.type for child in data_type.children)
        parts = [
            *_list_hash_parts(f"{variable}.key", key, depth + 1),
            *_list_hash_parts(f"{variable}.value", item, depth + 1),
        ]
        return [f"array_sort(transform(map_entries({value}), {variable} -> {_hash_sql(parts)}))", is_null]
    if data_type.kind in ("double", "float"):
        return [value, _null_or_minus_zero_sql(value)]
    return [value, is_null]


def _null_or_minus_zero_sql(value: str) -> str:
    """Return SQL that distinguishes null and minus zero from other numbers: Spark hashes -0.0 like 0.0.

    For all other numbers it hashes like `isnull`, so that stored sums stay valid.
    """
    return f"CASE WHEN {value} IS NULL THEN 1 WHEN {value} = 0 AND string({value}) = '-0.0' THEN 2 ELSE 0 END"


def _hash_sql(parts: Sequence[str]) -> str:
    return f"xxhash64({', '.join(parts)})"


def format_stored_type(data_type: SparkType) -> str:
    """Return a type as the table stores it."""
    if not data_type.children:
        return _STORED.get(data_type.kind, str(data_type))
    return (
        f"{data_type.kind}<"
        f"{', '.join(f'{quote_name(child.name)} {format_stored_type(child.type)}' for child in data_type.children)}>"
    )
