"""Compare two frames as multisets of rows, floating point within a tolerance, and report the first differences.

Only reads. Sums of hashes are compared first; rows are counted only if these differ.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from runnel.declare.model.column_types import Column
from runnel.errors import plural
from runnel.internal_names import internal_column
from runnel.run import content_tally
from runnel.run.verify.float_tolerance import close_sql, groupable_sql, has_tolerance
from runnel.run.write.target_layout import list_columns
from runnel.run.write.write_frame import measure_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SIDES = {"is_left": "l", "NOT is_left": "r"}
_MOST_PAIRS = 5
_LONGEST = 60
_COUNT = internal_column("number")  # of a row: how many more copies the left side has than the right


@dataclass(frozen=True)
class RowPair:
    """A row that only one side has, or the two rows of one key that are not the same."""

    left: Mapping[str, Any] | None = None
    right: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class FrameDifferences:
    """The differences of two frames; false if there are none. `columns` are missing on one side or differ in type.

    `first_pairs` are the first rows that differ, by `key`.
    """

    only_left: int = 0
    only_right: int = 0
    first_pairs: tuple[RowPair, ...] = ()
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any difference."""
        return bool(self.only_left or self.only_right or self.columns)

    def describe_lines(self, left: str, right: str) -> list[str]:
        """Return the differences as lines for users, counts first; `left` and `right` name the sides.

        >>> pair = RowPair({"day": "01-02", "n": 3}, {"day": "01-02", "n": 4})
        >>> FrameDifferences(1, 1, (pair,), ("day",)).describe_lines("the table", "the copy")
        ['1 row only in the table, 1 only in the copy', 'day 01-02: n 3 in the table, 4 in the copy']
        """
        if self.columns:
            return [f"the columns {', '.join(self.columns)} are not the same in {left} and {right}"]
        rows = plural(self.only_left, "row")
        lines = [f"{rows} only in {left}, {self.only_right:,} only in {right}"]
        return [*lines, *(_describe_pair(pair, self.key, left, right) for pair in self.first_pairs)]


def compare_frames(left: "DataFrame", right: "DataFrame", key: Sequence[str] = ()) -> FrameDifferences:
    """Return how two frames differ as multisets of rows; the order of rows and of columns does not matter.

    Rows that differ are shown by the columns in `key`. Rows that are equal except for floating point are compared
    in the order of those values.
    """
    columns = list_columns(left.schema)
    unequal_columns = _find_unequal_columns(columns, list_columns(right.schema))
    if unequal_columns:
        return FrameDifferences(columns=unequal_columns)
    reordered = right.select(*(content_tally.quote_name(column.name) for column in columns))
    if _compute_tally(left, columns) == _compute_tally(reordered, columns):
        return FrameDifferences()
    unequal_rows = _drop_rows_within_tolerance(_count_unequal_rows(left, reordered, columns), columns).persist()
    try:
        return _summarize_differences(unequal_rows, columns, key)
    finally:
        unequal_rows.unpersist()


def _find_unequal_columns(left: Sequence[Column], right: Sequence[Column]) -> tuple[str, ...]:
    """Return the columns that are not the same on both sides."""
    left_types, right_types = (
        {column.name.lower(): content_tally.format_stored_type(column.type).lower() for column in columns}
        for columns in (left, right)
    )
    names = {column.name.lower(): column.name for column in (*right, *left)}
    return tuple(names[name] for name in sorted(names) if left_types.get(name) != right_types.get(name))


def _compute_tally(frame: "DataFrame", columns: Sequence[Column]) -> content_tally.ContentTally:
    return content_tally.read(measure_rows(frame, columns, columns, ()))


def _count_unequal_rows(left: "DataFrame", right: "DataFrame", columns: Sequence[Column]) -> "DataFrame":
    """Return each row whose number of copies differs between the sides, with the difference."""
    from pyspark.sql import functions as F

    select_list = [
        f"{groupable_sql(content_tally.quote_name(column.name), column.type)} AS {_column_alias(index)}"
        for index, column in enumerate(columns)
    ]
    all_rows = left.selectExpr(*select_list, f"1L AS `{_COUNT}`").union(
        right.selectExpr(*select_list, f"-1L AS `{_COUNT}`")
    )
    names = [_column_alias(index) for index in range(len(columns))]
    return all_rows.groupBy(*names).agg(F.sum(f"`{_COUNT}`").alias(_COUNT)).where(f"`{_COUNT}` <> 0")


def _drop_rows_within_tolerance(rows: "DataFrame", columns: Sequence[Column]) -> "DataFrame":
    """Return the rows that have no counterpart within the floating-point tolerance on the other side."""
    from pyspark.sql import functions as F

    float_positions = [index for index, column in enumerate(columns) if has_tolerance(column.type)]
    if not float_positions:
        return rows
    exact_names = [_column_alias(index) for index in range(len(columns)) if index not in float_positions]
    values = f"struct({', '.join(_column_alias(index) for index in float_positions)})"
    window = (
        f"PARTITION BY {', '.join([*exact_names, 'is_left'])} ORDER BY "
        f"{', '.join(_column_alias(index) for index in float_positions)}"
    )
    single_rows = rows.selectExpr("*", f"`{_COUNT}` > 0 AS is_left", f"explode(sequence(1L, abs(`{_COUNT}`))) AS one")
    pairs = (
        single_rows.selectExpr("*", f"row_number() OVER ({window}) AS place")
        .groupBy(*exact_names, "place")
        .agg(*(F.expr(f"max({values}) FILTER (WHERE {side})").alias(name) for side, name in _SIDES.items()))
    )
    close_condition = " AND ".join(
        close_sql(f"l.{_column_alias(index)}", f"r.{_column_alias(index)}", columns[index].type)
        for index in float_positions
    )
    unequal_pairs = pairs.where(f"l IS NULL OR r IS NULL OR NOT ({close_condition})")
    side_rows = [
        unequal_pairs.where(f"{side} IS NOT NULL").selectExpr(
            *exact_names,
            *(f"{side}.{_column_alias(index)} AS {_column_alias(index)}" for index in float_positions),
            f"{number}L AS `{_COUNT}`",
        )
        for side, number in (("l", 1), ("r", -1))
    ]
    return side_rows[0].union(side_rows[1]).select(*(f"`{name}`" for name in rows.columns))


def _summarize_differences(
    unequal_rows: "DataFrame", columns: Sequence[Column], key: Sequence[str]
) -> FrameDifferences:
    from pyspark.sql import functions as F

    count_column = F.col(f"`{_COUNT}`")
    counts = [F.sum(F.greatest(count_column * sign, F.lit(0))) for sign in (1, -1)]
    left, right = (int(value or 0) for value in unequal_rows.agg(*counts).collect()[0])
    key_names = {name.strip("`").lower() for name in key}
    key_positions = [index for index, candidate in enumerate(columns) if candidate.name.lower() in key_names]
    exact_positions = [
        index
        for index, candidate in enumerate(columns)
        if index not in key_positions and not has_tolerance(candidate.type)
    ]
    order = [
        *key_positions,
        *exact_positions,
        *(index for index in range(len(columns)) if index not in (*key_positions, *exact_positions)),
    ]
    rows = unequal_rows.orderBy(*(_column_alias(index) for index in order)).limit(4 * _MOST_PAIRS).collect()
    pair_positions = (
        key_positions if key_positions and _is_unique_key(rows, key_positions) else [*key_positions, *exact_positions]
    )
    pairs = _pair_rows(rows, [column.name for column in columns], pair_positions)
    return FrameDifferences(
        left, right, tuple(pairs)[:_MOST_PAIRS], tuple(columns[index].name for index in pair_positions)
    )


def _is_unique_key(rows: Iterable[Any], positions: Sequence[int]) -> bool:
    """Return whether these columns are unique among the rows of each side."""
    keys = [repr([row[_COUNT] > 0, *(row[index] for index in positions)]) for row in rows]
    return len(set(keys)) == len(keys)


def _pair_rows(rows: Iterable[Any], names: Sequence[str], positions: Sequence[int]) -> Iterator[RowPair]:
    """Yield the rows of each key, as a pair if each side has exactly one."""
    for _, group in groupby(rows, key=lambda row: repr([row[index] for index in positions])):
        sided_rows = [(row[_COUNT] > 0, dict(zip(names, row, strict=False))) for row in group]
        left, right = ([row for is_left, row in sided_rows if is_left is side] for side in (True, False))
        if positions and len(left) == len(right) == 1:
            yield RowPair(left[0], right[0])
        else:
            yield from (RowPair(row, None) if is_left else RowPair(None, row) for is_left, row in sided_rows)


def _describe_pair(pair: RowPair, key: Sequence[str], left: str, right: str) -> str:
    row = pair.left if pair.left is not None else pair.right
    assert row is not None
    key_values = [f"{name} {_format_value(row[name])}" for name in key]
    if pair.left is None or pair.right is None:
        other_values = [f"{name} {_format_value(value)}" for name, value in row.items() if name not in key]
        return f"{', '.join([*key_values, *other_values])}: only in {left if pair.right is None else right}"
    left_row, right_row = pair.left, pair.right
    unequal_names = [name for name in left_row if name not in key and left_row[name] != right_row[name]]
    changes = "; ".join(
        f"{name} {_format_value(left_row[name])} in {left}, {_format_value(right_row[name])} in {right}"
        for name in unequal_names
    )
    return f"{', '.join(key_values)}: {changes}"


def _format_value(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _column_alias(index: int) -> str:
    return f"c{index}"
