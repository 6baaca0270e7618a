"""Compare two frames as multisets of rows, floating point to a tolerance, and tell the first rows that differ.

Only reads. Sums of hashes tell at once whether there is anything to look for; rows are counted only where they differ.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from runnel.declare.model.column_types import Column
from runnel.internal_names import internal_column
from runnel.run import content_tally
from runnel.run.verify.float_tolerance import close, is_loose, plain
from runnel.run.write.target_layout import columns_of
from runnel.run.write.write_frame import measured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SIDES = {"is_left": "l", "NOT is_left": "r"}
_SHOWN = 5
_LONGEST = 60
_NUMBER = internal_column("number")  # of a row: how many more of it are left than right


@dataclass(frozen=True)
class Pair:
    """A row that only one side has, or the two rows of one key that are not the same."""

    left: Mapping[str, Any] | None = None
    right: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Differences:
    """How two frames differ; false where they don't. `columns` are those that one lacks or that differ in type.

    `first` are the first rows that differ, by `key`.
    """

    only_left: int = 0
    only_right: int = 0
    first: tuple[Pair, ...] = ()
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether there is any difference."""
        return bool(self.only_left or self.only_right or self.columns)

    def lines(self, left: str, right: str) -> list[str]:
        """Return them for people, first how many; `left` and `right` are what the sides are called.

        >>> pair = Pair({"day": "01-02", "n": 3}, {"day": "01-02", "n": 4})
        >>> Differences(1, 1, (pair,), ("day",)).lines("the table", "the copy")
        ['1 row only in the table, 1 only in the copy', 'day 01-02: n 3 in the table, 4 in the copy']
        """
        if self.columns:
            return [f"the columns {', '.join(self.columns)} are not the same in {left} and {right}"]
        rows = f"{self.only_left:,} row{'' if self.only_left == 1 else 's'}"
        told = [f"{rows} only in {left}, {self.only_right:,} only in {right}"]
        return [*told, *(_line(pair, self.key, left, right) for pair in self.first)]


def differences(left: "DataFrame", right: "DataFrame", key: Sequence[str] = ()) -> Differences:
    """Return how two frames differ as multisets of rows; the order of rows and of columns does not matter.

    `key` are the columns by which rows that differ are shown. Rows with floating point that are equal in everything
    else are compared in the order of those values.
    """
    columns = columns_of(left.schema)
    apart = _apart(columns, columns_of(right.schema))
    if apart:
        return Differences(columns=apart)
    same = right.select(*(content_tally.quoted(column.name) for column in columns))
    if _tally(left, columns) == _tally(same, columns):
        return Differences()
    rest = _unlike(_counted(left, same, columns), columns).persist()
    try:
        return _told(rest, columns, key)
    finally:
        rest.unpersist()


def _apart(left: Sequence[Column], right: Sequence[Column]) -> tuple[str, ...]:
    """Return the columns that are not the same on both sides."""
    ours, theirs = (
        {one.name.lower(): content_tally.stored(one.type).lower() for one in side} for side in (left, right)
    )
    names = {one.name.lower(): one.name for one in (*right, *left)}
    return tuple(names[name] for name in sorted(names) if ours.get(name) != theirs.get(name))


def _tally(frame: "DataFrame", columns: Sequence[Column]) -> content_tally.Tally:
    return content_tally.read(measured(frame, columns, columns, ()))


def _counted(left: "DataFrame", right: "DataFrame", columns: Sequence[Column]) -> "DataFrame":
    """Return each row that is not the same number of times on both sides, with that difference."""
    from pyspark.sql import functions as F

    values = [f"{plain(content_tally.quoted(one.name), one.type)} AS {_name(at)}" for at, one in enumerate(columns)]
    every = left.selectExpr(*values, f"1L AS `{_NUMBER}`").union(right.selectExpr(*values, f"-1L AS `{_NUMBER}`"))
    names = [_name(at) for at in range(len(columns))]
    return every.groupBy(*names).agg(F.sum(f"`{_NUMBER}`").alias(_NUMBER)).where(f"`{_NUMBER}` <> 0")


def _unlike(rows: "DataFrame", columns: Sequence[Column]) -> "DataFrame":
    """Return the rows without those whose floating point has a partner within the tolerance on the other side."""
    from pyspark.sql import functions as F

    loose = [at for at, column in enumerate(columns) if is_loose(column.type)]
    if not loose:
        return rows
    fixed = [_name(at) for at in range(len(columns)) if at not in loose]
    values = f"struct({', '.join(_name(at) for at in loose)})"
    window = f"PARTITION BY {', '.join([*fixed, 'is_left'])} ORDER BY {', '.join(_name(at) for at in loose)}"
    single = rows.selectExpr("*", f"`{_NUMBER}` > 0 AS is_left", f"explode(sequence(1L, abs(`{_NUMBER}`))) AS one")
    pairs = (
        single.selectExpr("*", f"row_number() OVER ({window}) AS place")
        .groupBy(*fixed, "place")
        .agg(*(F.expr(f"max({values}) FILTER (WHERE {side})").alias(name) for side, name in _SIDES.items()))
    )
    alike = " AND ".join(close(f"l.{_name(at)}", f"r.{_name(at)}", columns[at].type) for at in loose)
    apart = pairs.where(f"l IS NULL OR r IS NULL OR NOT ({alike})")
    sides = [
        apart.where(f"{side} IS NOT NULL").selectExpr(
            *fixed, *(f"{side}.{_name(at)} AS {_name(at)}" for at in loose), f"{number}L AS `{_NUMBER}`"
        )
        for side, number in (("l", 1), ("r", -1))
    ]
    return sides[0].union(sides[1]).select(*(f"`{name}`" for name in rows.columns))


def _told(rest: "DataFrame", columns: Sequence[Column], key: Sequence[str]) -> Differences:
    from pyspark.sql import functions as F

    number = F.col(f"`{_NUMBER}`")
    counts = [F.sum(F.greatest(number * sign, F.lit(0))) for sign in (1, -1)]
    left, right = (int(value or 0) for value in rest.agg(*counts).collect()[0])
    wanted = {name.strip("`").lower() for name in key}
    known = [at for at, one in enumerate(columns) if one.name.lower() in wanted]
    exact = [at for at, one in enumerate(columns) if at not in known and not is_loose(one.type)]
    order = [*known, *exact, *(at for at in range(len(columns)) if at not in (*known, *exact))]
    rows = rest.orderBy(*(_name(at) for at in order)).limit(4 * _SHOWN).collect()
    places = known if known and _is_key(rows, known) else [*known, *exact]
    pairs = _paired(rows, [column.name for column in columns], places)
    return Differences(left, right, tuple(pairs)[:_SHOWN], tuple(columns[at].name for at in places))


def _is_key(rows: Iterable[Any], places: Sequence[int]) -> bool:
    """Tell whether no two rows of a side are equal in some columns."""
    keys = [repr([row[_NUMBER] > 0, *(row[at] for at in places)]) for row in rows]
    return len(set(keys)) == len(keys)


def _paired(rows: Iterable[Any], names: Sequence[str], places: Sequence[int]) -> Iterator[Pair]:
    """Yield the rows of each key: two as a pair where there is one on each side."""
    for _, group in groupby(rows, key=lambda row: repr([row[at] for at in places])):
        found = [(row[_NUMBER] > 0, dict(zip(names, row, strict=False))) for row in group]
        left, right = ([row for is_left, row in found if is_left is side] for side in (True, False))
        if places and len(left) == len(right) == 1:
            yield Pair(left[0], right[0])
        else:
            yield from (Pair(row, None) if is_left else Pair(None, row) for is_left, row in found)


def _line(pair: Pair, key: Sequence[str], left: str, right: str) -> str:
    one = pair.left if pair.left is not None else pair.right
    assert one is not None
    known = [f"{name} {_shown(one[name])}" for name in key]
    if pair.left is None or pair.right is None:
        rest = [f"{name} {_shown(value)}" for name, value in one.items() if name not in key]
        return f"{', '.join([*known, *rest])}: only in {left if pair.right is None else right}"
    ours, theirs = pair.left, pair.right
    unlike = [name for name in ours if name not in key and ours[name] != theirs[name]]
    told = "; ".join(f"{name} {_shown(ours[name])} in {left}, {_shown(theirs[name])} in {right}" for name in unlike)
    return f"{', '.join(known)}: {told}"


def _shown(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _name(at: int) -> str:
    return f"c{at}"
