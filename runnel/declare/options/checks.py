"""Declare checks: `rn.not_null("seller_id")`, `rn.check("revenue >= 0", on_fail="quarantine")`.

Pure: each function returns a `Check` value; checks of single rows hold their condition as Spark SQL. A mistake is
recorded in the registry, and the function then returns a check that always passes.
"""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, get_args

from runnel.declare.model.flow import Check, OnFail
from runnel.declare.options.duration import parse_duration
from runnel.declare.registry import current_registry
from runnel.declare.sql.literals import format_literal, quote_column
from runnel.errors import Mistake, close_hint, find_nearest
from runnel.names import quote_value

P = ParamSpec("P")
ON_FAIL: tuple[str, ...] = get_args(OnFail)
_TABLE_ACTIONS = ("stop", "warn")
_CLOSING_BRACKETS = {"(": ")", "[": "]"}
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--|/\*|['\"`()\[\];]", re.DOTALL)


def _report_mistakes(constructor: Callable[P, Check]) -> Callable[P, Check]:
    """Wrap a constructor so that it records mistakes in the registry, and the user's line in the check."""

    @functools.wraps(constructor)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Check:
        registry = current_registry()
        place = registry.caller_location()
        try:
            return replace(constructor(*args, **kwargs), place=place)
        except Mistake as mistake:
            registry.report_mistake(mistake, place)
        except TypeError as error:  # a wrong call, such as an unknown option
            registry.reject("DECLARE_CHECK", str(error), at=place, fix=f"see help(rn.{constructor.__name__})")
        return Check("condition", constructor.__name__, condition="true", place=place)

    return wrapper


@_report_mistakes
def check(condition: str, *, on_fail: OnFail = "stop") -> Check:
    """Claim that a Spark SQL condition holds for each row; a row for which it is null passes."""
    if not isinstance(condition, str) or not condition.strip():
        raise Mistake(
            "DECLARE_CHECK", f"{quote_value(condition)} is not a condition", fix='write rn.check("revenue >= 0")'
        )
    refuse_unbalanced(condition)
    return _build_row_check("condition", condition.strip(), (), condition.strip(), on_fail)


@_report_mistakes
def not_null(*columns: str, on_fail: OnFail = "stop") -> Check:
    """Claim that columns are never null."""
    names = _join_columns(columns, "not_null")
    return _build_row_check(
        "not_null", names, columns, " and ".join(f"{quote_column(name)} is not null" for name in columns), on_fail
    )


@_report_mistakes
def unique(*columns: str, on_fail: OnFail = "stop") -> Check:
    """Claim that no two rows of the table have the same values in these columns."""
    return _build_table_check("unique", _join_columns(columns, "unique"), columns, (), on_fail)


@_report_mistakes
def accepted(name: str, values: Iterable[Any], *, on_fail: OnFail = "stop") -> Check:
    """Claim that a column has one of these values, or null."""
    value_list = [] if isinstance(values, str) else list(values)
    if not value_list or None in value_list:
        fix = 'list the values, without None: rn.accepted("status", ["new", "paid"]); null passes anyway'
        raise Mistake("DECLARE_CHECK", f"{quote_value(values)} is not a list of values", fix=fix)
    condition = f"{quote_column(name)} in ({', '.join(format_literal(value) for value in value_list)})"
    return _build_row_check(
        "accepted", f"{name}, {_format_value(value_list)}", (name,), condition, on_fail, values=tuple(value_list)
    )


@_report_mistakes
def between(name: str, low: Any = None, high: Any = None, *, on_fail: OnFail = "stop") -> Check:
    """Claim that a column lies between two values, both included; leave one out for an open end."""
    bounds = [
        f"{quote_column(name)} {sign} {format_literal(bound)}"
        for sign, bound in ((">=", low), ("<=", high))
        if bound is not None
    ]
    if not bounds:
        raise Mistake("DECLARE_CHECK", "between has no bounds", fix=f'write rn.between("{name}", 0, 5)')
    text = f"{name}, {_format_value(low)}, {_format_value(high)}"
    return _build_row_check("between", text, (name,), " and ".join(bounds), on_fail, low=low, high=high)


@_report_mistakes
def matches(name: str, pattern: str, *, on_fail: OnFail = "stop") -> Check:
    """Claim that a regular expression matches somewhere in a column's text."""
    if not isinstance(pattern, str):
        raise Mistake(
            "DECLARE_CHECK", f"{quote_value(pattern)} is not a pattern", fix='write rn.matches("code", "^[A-Z]+$")'
        )
    condition = f"{quote_column(name)} rlike {format_literal(pattern)}"
    return _build_row_check(
        "matches", f"{name}, {_format_value(pattern)}", (name,), condition, on_fail, pattern=pattern
    )


@_report_mistakes
def references(name: str, target: str, *, on_fail: OnFail = "stop") -> Check:
    """Claim that each value of a column exists in another table: `rn.references("seller_id", "ods.sellers.id")`."""
    quote_column(name)
    table, _, other = target.rpartition(".") if isinstance(target, str) else ("", "", "")
    if not table or not other or table.count(".") > 1:
        fix = 'name a table and its column: rn.references("seller_id", "ods.sellers.id")'
        raise Mistake("DECLARE_CHECK", f"{quote_value(target)} is not a column of a table", fix=fix)
    return _build_table_check(
        "references", f"{name}, {_format_value(target)}", (name,), (("table", table), ("column", other)), on_fail
    )


@_report_mistakes
def row_count(*, min: int | None = None, max: int | None = None, on_fail: OnFail = "stop") -> Check:
    """Claim how many rows the table has at least or at most."""
    bounds = tuple((name, value) for name, value in (("min", min), ("max", max)) if value is not None)
    if not bounds or not all(isinstance(value, int) and value >= 0 for _, value in bounds):
        raise Mistake("DECLARE_CHECK", "row_count has no bounds", fix="write rn.row_count(min=1), max=, or both")
    return _build_table_check("row_count", ", ".join(f"{name}={value}" for name, value in bounds), (), bounds, on_fail)


@_report_mistakes
def fresh(name: str, within: str, *, on_fail: OnFail = "stop") -> Check:
    """Claim that the newest value of a time column is at most this old: `rn.fresh("ts", within="1 day")`."""
    quote_column(name)
    arguments = (("within_seconds", parse_duration(within, code="DECLARE_CHECK")),)
    return _build_table_check("fresh", f"{name}, within={_format_value(within)}", (name,), arguments, on_fail)


BY_NAME: dict[str, Callable[..., Check]] = {
    check_function.__name__: check_function
    for check_function in (not_null, unique, accepted, between, matches, references, row_count, fresh)
}


def refuse_unbalanced(condition: str) -> None:
    """Raise if a condition can't be embedded in a query: an open quote or bracket, a comment, a semicolon."""
    expected_closers: list[str] = []
    for match in _TOKEN.finditer(condition):
        token = match[0]
        if token in _CLOSING_BRACKETS:
            expected_closers.append(_CLOSING_BRACKETS[token])
        elif token in (")", "]") and expected_closers and expected_closers[-1] == token:
            expected_closers.pop()
        elif len(token) == 1 or token in ("--", "/*"):
            what = f"the condition {quote_value(condition)} has {quote_value(token)} that does not belong there"
            raise Mistake("DECLARE_CHECK", what, fix="close quotes and brackets; leave out comments and semicolons")
    if expected_closers:
        what = f"the condition {quote_value(condition)} lacks a closing {quote_value(expected_closers[-1])}"
        raise Mistake("DECLARE_CHECK", what, fix="close the bracket")


def _build_row_check(
    kind: str, text: str, columns: Sequence[str], condition: str, on_fail: OnFail, **arguments: Any
) -> Check:
    display_text = text if kind == "condition" else f"{kind}({text})"
    _check_on_fail(on_fail, ON_FAIL, display_text)
    return Check(kind, display_text, tuple(columns), condition, tuple(arguments.items()), on_fail)


def _build_table_check(
    kind: str, text: str, columns: Sequence[str], arguments: tuple[tuple[str, Any], ...], on_fail: OnFail
) -> Check:
    if on_fail in ON_FAIL and on_fail not in _TABLE_ACTIONS:
        what = f"`{kind}({text})` applies to the whole table, so it has no rows to {_describe_action(on_fail)}"
        raise Mistake("DECLARE_CHECK", what, fix='use on_fail="stop" or on_fail="warn"')
    _check_on_fail(on_fail, _TABLE_ACTIONS, f"{kind}({text})")
    return Check(kind, f"{kind}({text})", tuple(columns), None, arguments, on_fail)


def _describe_action(on_fail: str) -> str:
    return "drop" if on_fail == "drop" else "put into quarantine"


def _check_on_fail(on_fail: Any, allowed: Sequence[str], text: str) -> None:
    if on_fail not in allowed:
        close = find_nearest(on_fail, allowed) if isinstance(on_fail, str) else None
        what = f"`{text}` has on_fail={quote_value(on_fail)}" + close_hint(close)
        raise Mistake("DECLARE_CHECK", what, fix=f"use one of {', '.join(allowed)}")


def _join_columns(columns: Sequence[str], kind: str) -> str:
    if not columns:
        raise Mistake("DECLARE_CHECK", f"{kind} names no column", fix=f'write rn.{kind}("order_id")')
    for name in columns:
        quote_column(name)
    return ", ".join(columns)


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_format_value(item) for item in value) + "]"
    return repr(value) if isinstance(value, str | bool | int | float | None) else str(value)
