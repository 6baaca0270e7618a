"""Read from a condition or a window frame how far expressions lie apart, in whole numbers or days. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runnel.run.analysis.expression_text import PlanExpression, list_equalities, parse_expression, split_condition
from runnel.run.analysis.key_propagation import RowCondition

_DAY_MICROSECONDS = 86_400_000_000
_WHOLE = ("byte", "short", "integer", "long")
# How much larger the left side of a comparison is at least; for the second mapping, the right side.
_LEAST = {"GreaterThanOrEqual": 0, "GreaterThan": 1}
_MOST = {"LessThanOrEqual": 0, "LessThan": 1}


def read_condition(expression: PlanExpression | None) -> RowCondition:
    """Return what holds in every row for which a condition is true."""
    minimum_difference: dict[tuple[str, str], int] = {}
    for condition_part in split_condition(expression, "And"):
        for larger, smaller, minimum in _list_comparisons(condition_part):
            for pair, number in _list_differences(larger, smaller, minimum):
                minimum_difference[pair] = max(number, minimum_difference.get(pair, number))
    return RowCondition(list(list_equalities(expression)), minimum_difference)


@dataclass(frozen=True)
class WindowFrame:
    """The range of rows that a window reads, as distances from the key of the row; None means unbounded."""

    is_range: bool
    first: int | None
    last: int | None


def read_window_frames(window_expressions: Any) -> list[WindowFrame | None]:
    """Return the frame of each window expression; None if it can't be read."""
    window_frames: list[WindowFrame | None] = []
    for items in window_expressions or ():
        pending = [top] if (top := parse_expression(items)) else []
        while pending:
            expression = pending.pop()
            if expression.kind == "WindowSpecDefinition":
                window_frames.append(_read_window_frame(expression.children[-1]))
            else:
                pending.extend(expression.children)
    return window_frames


def _read_window_frame(frame_expression: PlanExpression) -> WindowFrame | None:
    if frame_expression.kind != "SpecifiedWindowFrame":
        return None
    is_range = "RangeFrame" in str(frame_expression.item.get("frameType"))
    bounds = []
    for child in frame_expression.children:
        number = 0 if child.kind == "CurrentRow" else read_constant(child)
        if number is None and not child.kind.startswith("Unbounded"):
            return None
        bounds.append(number)
    return WindowFrame(is_range, bounds[0], bounds[1])


def read_constant(expression: PlanExpression) -> int | None:
    """Return the value of a constant whole number, or of an interval in whole days."""
    item, children = expression.item, expression.children
    if expression.kind == "Literal" and item.get("value") is not None:
        kind = str(item.get("dataType"))
        if kind in _WHOLE:
            return int(item["value"])
        if kind.startswith("interval day") or "daytime" in kind.lower():
            return _to_days(str(item["value"]))
        return None
    is_number = expression.kind == "Cast" and item.get("dataType") in _WHOLE
    if is_number or expression.kind == "ExtractANSIIntervalDays":
        return read_constant(children[0])
    if expression.kind == "UnaryMinus":
        number = read_constant(children[0])
        return None if number is None else -number
    return None


def _to_days(microseconds: str) -> int | None:
    if not re.fullmatch(r"-?\d+", microseconds) or int(microseconds) % _DAY_MICROSECONDS:
        return None
    return int(microseconds) // _DAY_MICROSECONDS


def _list_comparisons(comparison: PlanExpression) -> Iterator[tuple[PlanExpression, PlanExpression, int]]:
    """Yield (larger, smaller, minimum difference) for each comparison."""
    if comparison.kind in _LEAST:
        yield comparison.children[0], comparison.children[1], _LEAST[comparison.kind]
    elif comparison.kind in _MOST:
        yield comparison.children[1], comparison.children[0], _MOST[comparison.kind]
    elif comparison.kind == "EqualTo":
        yield comparison.children[0], comparison.children[1], 0
        yield comparison.children[1], comparison.children[0], 0
    elif comparison.kind == "Between":
        middle, lower, upper = (parse_expression(comparison.item.get(name)) for name in ("input", "lower", "upper"))
        if middle and lower and upper:
            yield middle, lower, 0
            yield upper, middle, 0


def _list_differences(
    larger: PlanExpression, smaller: PlanExpression, minimum: int
) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the minimum difference of two expressions, given that larger >= smaller + minimum."""
    for between, other, sign in ((larger, smaller, 1), (smaller, larger, -1)):
        number = read_constant(other)
        if between.kind == "DateDiff" and number is not None:
            end, start = (_split_offset(child) for child in between.children)
            if end and start:
                pair = (end[0], start[0]) if sign > 0 else (start[0], end[0])
                yield pair, sign * (number + start[1] - end[1]) + minimum
    left, right = _split_offset(larger), _split_offset(smaller)
    if left and right:
        yield (left[0], right[0]), right[1] - left[1] + minimum


def _split_offset(expression: PlanExpression) -> tuple[str, int] | None:
    """Return an expression as the text of another one and the constant that is added to it."""
    offset = 0
    while True:
        kind, children = expression.kind, expression.children
        numbers: Sequence[int | None] = [read_constant(child) for child in children]
        if kind in ("DateAdd", "Add") and len(children) == 2 and numbers[1] is not None:
            offset, expression = offset + numbers[1], children[0]
        elif kind == "Add" and len(children) == 2 and numbers[0] is not None:
            offset, expression = offset + numbers[0], children[1]
        elif kind in ("DateSub", "Subtract") and len(children) == 2 and numbers[1] is not None:
            offset, expression = offset - numbers[1], children[0]
        else:
            break
    text = unwrap_date(expression).value_text
    return None if text is None else (text, offset)


def unwrap_date(expression: PlanExpression) -> PlanExpression:
    """Return the date inside `unix_date(...)`, or the expression itself."""
    return expression.children[0] if expression.kind == "UnixDate" else expression
