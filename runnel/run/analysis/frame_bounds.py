"""Read off a condition, or the frame of a window, how far expressions lie apart: whole numbers and days. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runnel.run.analysis.expression_text import Expression, equalities, parse, parts
from runnel.run.analysis.key_propagation import Condition

_DAY_MICROSECONDS = 86_400_000_000
_WHOLE = ("byte", "short", "integer", "long")
# How much larger the left side of a comparison is at least; the right side of its mirror image.
_LEAST = {"GreaterThanOrEqual": 0, "GreaterThan": 1}
_MOST = {"LessThanOrEqual": 0, "LessThan": 1}


def condition_of(expression: Expression | None) -> Condition:
    """Return what holds in every row for which a condition is true."""
    least: dict[tuple[str, str], int] = {}
    for one in parts(expression, "And"):
        for larger, smaller, more in _comparisons(one):
            for pair, number in _difference(larger, smaller, more):
                least[pair] = max(number, least.get(pair, number))
    return Condition(list(equalities(expression)), least)


@dataclass(frozen=True)
class Frame:
    """Which rows a window reads, by how far their key lies from that of the row; None stands for any distance."""

    is_range: bool
    first: int | None
    last: int | None


def frames(window_expressions: Any) -> list[Frame | None]:
    """Return the frame of each expression of a window; None where it can't be read."""
    found: list[Frame | None] = []
    for items in window_expressions or ():
        todo = [top] if (top := parse(items)) else []
        while todo:
            one = todo.pop()
            if one.kind == "WindowSpecDefinition":
                found.append(_frame(one.children[-1]))
            else:
                todo.extend(one.children)
    return found


def _frame(specified: Expression) -> Frame | None:
    if specified.kind != "SpecifiedWindowFrame":
        return None
    is_range = "RangeFrame" in str(specified.item.get("frameType"))
    ends = []
    for child in specified.children:
        number = 0 if child.kind == "CurrentRow" else constant(child)
        if number is None and not child.kind.startswith("Unbounded"):
            return None
        ends.append(number)
    return Frame(is_range, ends[0], ends[1])


def constant(expression: Expression) -> int | None:
    """Return the value of a constant whole number, or of an interval in whole days."""
    item, inner = expression.item, expression.children
    if expression.kind == "Literal" and item.get("value") is not None:
        kind = str(item.get("dataType"))
        if kind in _WHOLE:
            return int(item["value"])
        if kind.startswith("interval day") or "daytime" in kind.lower():
            return _days(str(item["value"]))
        return None
    is_number = expression.kind == "Cast" and item.get("dataType") in _WHOLE
    if is_number or expression.kind == "ExtractANSIIntervalDays":
        return constant(inner[0])
    if expression.kind == "UnaryMinus":
        number = constant(inner[0])
        return None if number is None else -number
    return None


def _days(microseconds: str) -> int | None:
    if not re.fullmatch(r"-?\d+", microseconds) or int(microseconds) % _DAY_MICROSECONDS:
        return None
    return int(microseconds) // _DAY_MICROSECONDS


def _comparisons(one: Expression) -> Iterator[tuple[Expression, Expression, int]]:
    """Yield what is larger, what is smaller, and by how much at least."""
    if one.kind in _LEAST:
        yield one.children[0], one.children[1], _LEAST[one.kind]
    elif one.kind in _MOST:
        yield one.children[1], one.children[0], _MOST[one.kind]
    elif one.kind == "EqualTo":
        yield one.children[0], one.children[1], 0
        yield one.children[1], one.children[0], 0
    elif one.kind == "Between":
        middle, lower, upper = (parse(one.item.get(name)) for name in ("input", "lower", "upper"))
        if middle and lower and upper:
            yield middle, lower, 0
            yield upper, middle, 0


def _difference(larger: Expression, smaller: Expression, more: int) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield how much one expression is at least above another, given that larger >= smaller + more."""
    for between, other, sign in ((larger, smaller, 1), (smaller, larger, -1)):
        number = constant(other)
        if between.kind == "DateDiff" and number is not None:
            end, start = (_shifted(child) for child in between.children)
            if end and start:
                pair = (end[0], start[0]) if sign > 0 else (start[0], end[0])
                yield pair, sign * (number + start[1] - end[1]) + more
    left, right = _shifted(larger), _shifted(smaller)
    if left and right:
        yield (left[0], right[0]), right[1] - left[1] + more


def _shifted(expression: Expression) -> tuple[str, int] | None:
    """Return an expression as another one and a number that is added to it."""
    offset = 0
    while True:
        kind, inner = expression.kind, expression.children
        numbers: Sequence[int | None] = [constant(child) for child in inner]
        if kind in ("DateAdd", "Add") and len(inner) == 2 and numbers[1] is not None:
            offset, expression = offset + numbers[1], inner[0]
        elif kind == "Add" and len(inner) == 2 and numbers[0] is not None:
            offset, expression = offset + numbers[0], inner[1]
        elif kind in ("DateSub", "Subtract") and len(inner) == 2 and numbers[1] is not None:
            offset, expression = offset - numbers[1], inner[0]
        else:
            break
    text = day_of(expression).value_text
    return None if text is None else (text, offset)


def day_of(expression: Expression) -> Expression:
    """Return the date behind the number of a day, or else the expression itself."""
    return expression.children[0] if expression.kind == "UnixDate" else expression
