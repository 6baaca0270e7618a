"""Tell the contents of tables apart by sums of hashes over their rows.

Pure: makes Spark SQL, and values of what Spark found. Sums don't depend on the order of rows, and those of appended
rows are added to those that were there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from runnel.declare.model.column_types import Column, SparkType
from runnel.internal_names import internal_column
from runnel.lake.diff.content_id import of_rows

ROWS, ONE, TWO = (
    internal_column(word) for word in ("rows", "one", "two")
)  # columns that exist only while rows are counted
_SALTS = {ONE: 17, TWO: 4099}
_WRAP = 2**64
_PART_BITS = 21
_PART = 2**_PART_BITS - 1
_STORED = {"tinyint": "int", "smallint": "int"}  # Iceberg has no smaller numbers


class Tally(NamedTuple):
    """How many rows, and the sums of two independent hashes over them."""

    rows: int = 0
    one: int = 0
    two: int = 0

    def plus(self, other: "Tally") -> "Tally":
        """Return the tally of the rows of both.

        >>> Tally(1, 5, 7).plus(Tally(2, 2**64 - 1, 1))
        Tally(rows=3, one=4, two=8)
        """
        return Tally(self.rows + other.rows, (self.one + other.one) % _WRAP, (self.two + other.two) % _WRAP)

    def minus(self, other: "Tally") -> "Tally":
        """Return the tally of the rows that are left without those of another.

        >>> Tally(3, 4, 8).minus(Tally(2, 5, 1))
        Tally(rows=1, one=18446744073709551615, two=7)
        """
        return Tally(self.rows - other.rows, (self.one - other.one) % _WRAP, (self.two - other.two) % _WRAP)


NOTHING = Tally()


def content(columns: Sequence[Column], tally: Tally) -> str:
    """Return the content of a table; the order of its columns does not matter."""
    return of_rows(", ".join(sorted(f"{quoted(column.name)} {stored(column.type)}" for column in columns)), *tally)


def hashes(columns: Sequence[Column]) -> list[str]:
    """Return the two hashes of a row as SQL, each named."""
    parts = [part for column in sorted(columns, key=_name) for part in _parts(quoted(column.name), column.type)]
    return [f"xxhash64({', '.join([str(salt), *parts])}) AS `{name}`" for name, salt in _SALTS.items()]


def sums() -> dict[str, str]:
    """Return the aggregates, by name, that a tally is read from.

    Each hash is added up in three parts: a sum of whole ones would overflow, and decimals cost twice the time. The
    parts hold up to four million million rows.
    """
    found = {ROWS: "count(1)"}
    for name in _SALTS:
        column = f"`{name}`"
        found[f"{name} high"] = f"sum(shiftright({column}, {2 * _PART_BITS}))"
        found[f"{name} middle"] = f"sum(shiftright({column}, {_PART_BITS}) & {_PART})"
        found[f"{name} low"] = f"sum({column} & {_PART})"
    return found


def read(found: Mapping[str, Any]) -> Tally:
    """Return the tally behind the values of `sums`."""

    def whole(name: str) -> int:
        high, middle, low = (int(found[f"{name} {part}"] or 0) for part in ("high", "middle", "low"))
        total: int = (high << 2 * _PART_BITS) + (middle << _PART_BITS) + low
        return total % _WRAP

    return Tally(int(found[ROWS]), whole(ONE), whole(TWO))


def quoted(name: str) -> str:
    """Return a column's name as SQL.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def _name(column: Column) -> str:
    return column.name


def _parts(value: str, kind: SparkType, depth: int = 0) -> list[str]:
    """Return what of a value goes into a hash. Spark's hashes pass over nulls, so whether it is one goes in too."""
    inner = f"x{depth}"
    is_null = f"isnull({value})"
    if kind.kind == "struct":
        fields = (_parts(f"{value}.{quoted(child.name)}", child.type, depth) for child in kind.children)
        return [is_null, *(part for parts in fields for part in parts)]
    if kind.kind == "array":
        return [f"transform({value}, {inner} -> {_hash(_parts(inner, kind.children[0].type, depth + 1))})", is_null]
    if kind.kind == "map":  # its entries have no order
        key, item = (child.type for child in kind.children)
        parts = [*_parts(f"{inner}.key", key, depth + 1), *_parts(f"{inner}.value", item, depth + 1)]
        return [f"array_sort(transform(map_entries({value}), {inner} -> {_hash(parts)}))", is_null]
    if kind.kind in ("double", "float"):
        return [value, _null_or_minus_zero(value)]
    return [value, is_null]


def _null_or_minus_zero(value: str) -> str:
    """Return what tells null and minus zero apart from other numbers: Spark's hashes take -0.0 for 0.0.

    For all others it is what `isnull` is to a hash, so that sums that were kept stay right.
    """
    return f"CASE WHEN {value} IS NULL THEN 1 WHEN {value} = 0 AND string({value}) = '-0.0' THEN 2 ELSE 0 END"


def _hash(parts: Sequence[str]) -> str:
    return f"xxhash64({', '.join(parts)})"


def stored(kind: SparkType) -> str:
    """Return a type as the table stores it."""
    if not kind.children:
        return _STORED.get(kind.kind, str(kind))
    return f"{kind.kind}<{', '.join(f'{quoted(child.name)} {stored(child.type)}' for child in kind.children)}>"
