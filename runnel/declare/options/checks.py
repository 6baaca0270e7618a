"""Checks as users write them: `rn.not_null("seller_id")`, `rn.check("revenue >= 0", on_fail="quarantine")`.

Pure: each makes a value, with its condition as Spark SQL where it is about single rows. A mistake in one is kept in
the registry, and what it returns then always holds.
"""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, get_args

from runnel.declare.model.flow import Check, OnFail
from runnel.declare.options.duration import seconds_of
from runnel.declare.registry import current
from runnel.declare.sql.literals import column, literal
from runnel.errors import Mistake, nearest
from runnel.names import shown

P = ParamSpec("P")
ON_FAIL: tuple[str, ...] = get_args(OnFail)
_OF_TABLES = ("stop", "warn")
_OPENED = {"(": ")", "[": "]"}
_SCANNED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--|/\*|['\"`()\[\];]", re.DOTALL)


def _noted(make: Callable[P, Check]) -> Callable[P, Check]:
    """Keep the mistakes of a check in the registry, and the user's line in the check."""

    @functools.wraps(make)
    def made(*given: P.args, **named: P.kwargs) -> Check:
        registry = current()
        place = registry.here()
        try:
            return replace(make(*given, **named), place=place)
        except Mistake as mistake:
            registry.note(mistake, place)
        except TypeError as error:  # a wrong call, such as an option that there is not
            registry.wrong("DECLARE_CHECK", str(error), at=place, fix=f"see help(rn.{make.__name__})")
        return Check("condition", make.__name__, condition="true", place=place)

    return made


@_noted
def check(condition: str, *, on_fail: OnFail = "stop") -> Check:
    """Claim that a condition in Spark SQL holds for each row; where it is null, it passes."""
    if not isinstance(condition, str) or not condition.strip():
        raise Mistake("DECLARE_CHECK", f"{shown(condition)} is not a condition", fix='write rn.check("revenue >= 0")')
    refuse_unfinished(condition)
    return _row("condition", condition.strip(), (), condition.strip(), on_fail)


@_noted
def not_null(*columns: str, on_fail: OnFail = "stop") -> Check:
    """Claim that columns are never null."""
    names = _some(columns, "not_null")
    return _row("not_null", names, columns, " and ".join(f"{column(one)} is not null" for one in columns), on_fail)


@_noted
def unique(*columns: str, on_fail: OnFail = "stop") -> Check:
    """Claim that no two rows of the table have the same values in these columns."""
    return _table("unique", _some(columns, "unique"), columns, (), on_fail)


@_noted
def accepted(name: str, values: Iterable[Any], *, on_fail: OnFail = "stop") -> Check:
    """Claim that a column has one of these values, or null."""
    listed = [] if isinstance(values, str) else list(values)
    if not listed or None in listed:
        fix = 'list the values, without None: rn.accepted("status", ["new", "paid"]); null passes anyway'
        raise Mistake("DECLARE_CHECK", f"{shown(values)} is not a list of values", fix=fix)
    condition = f"{column(name)} in ({', '.join(literal(value) for value in listed)})"
    return _row("accepted", f"{name}, {_shown(listed)}", (name,), condition, on_fail, values=tuple(listed))


@_noted
def between(name: str, low: Any = None, high: Any = None, *, on_fail: OnFail = "stop") -> Check:
    """Claim that a column lies between two values, both included; leave one out for an open end."""
    bounds = [f"{column(name)} {sign} {literal(at)}" for sign, at in ((">=", low), ("<=", high)) if at is not None]
    if not bounds:
        raise Mistake("DECLARE_CHECK", "between has no bounds", fix=f'write rn.between("{name}", 0, 5)')
    text = f"{name}, {_shown(low)}, {_shown(high)}"
    return _row("between", text, (name,), " and ".join(bounds), on_fail, low=low, high=high)


@_noted
def matches(name: str, pattern: str, *, on_fail: OnFail = "stop") -> Check:
    """Claim that a regular expression is found in a column's text."""
    if not isinstance(pattern, str):
        raise Mistake("DECLARE_CHECK", f"{shown(pattern)} is not a pattern", fix='write rn.matches("code", "^[A-Z]+$")')
    condition = f"{column(name)} rlike {literal(pattern)}"
    return _row("matches", f"{name}, {_shown(pattern)}", (name,), condition, on_fail, pattern=pattern)


@_noted
def references(name: str, target: str, *, on_fail: OnFail = "stop") -> Check:
    """Claim that each value of a column is in another table's: `rn.references("seller_id", "ods.sellers.id")`."""
    column(name)
    table, _, other = target.rpartition(".") if isinstance(target, str) else ("", "", "")
    if not table or not other or table.count(".") > 1:
        fix = 'name a table and its column: rn.references("seller_id", "ods.sellers.id")'
        raise Mistake("DECLARE_CHECK", f"{shown(target)} is not a column of a table", fix=fix)
    return _table("references", f"{name}, {_shown(target)}", (name,), (("table", table), ("column", other)), on_fail)


@_noted
def row_count(*, min: int | None = None, max: int | None = None, on_fail: OnFail = "stop") -> Check:
    """Claim how many rows the table has at least or at most."""
    given = tuple((name, value) for name, value in (("min", min), ("max", max)) if value is not None)
    if not given or not all(isinstance(value, int) and value >= 0 for _, value in given):
        raise Mistake("DECLARE_CHECK", "row_count has no bounds", fix="write rn.row_count(min=1), max=, or both")
    return _table("row_count", ", ".join(f"{name}={value}" for name, value in given), (), given, on_fail)


@_noted
def fresh(name: str, within: str, *, on_fail: OnFail = "stop") -> Check:
    """Claim that the newest value of a time column is at most this old: `rn.fresh("ts", within="1 day")`."""
    column(name)
    arguments = (("within_seconds", seconds_of(within, code="DECLARE_CHECK")),)
    return _table("fresh", f"{name}, within={_shown(within)}", (name,), arguments, on_fail)


BY_NAME: dict[str, Callable[..., Check]] = {
    made.__name__: made for made in (not_null, unique, accepted, between, matches, references, row_count, fresh)
}


def refuse_unfinished(condition: str) -> None:
    """Raise where a condition would swallow the text around it: an open quote or bracket, a comment, a semicolon."""
    awaited: list[str] = []
    for found in _SCANNED.finditer(condition):
        word = found[0]
        if word in _OPENED:
            awaited.append(_OPENED[word])
        elif word in (")", "]") and awaited and awaited[-1] == word:
            awaited.pop()
        elif len(word) == 1 or word in ("--", "/*"):
            what = f"the condition {shown(condition)} has {shown(word)} that does not belong there"
            raise Mistake("DECLARE_CHECK", what, fix="close quotes and brackets; leave out comments and semicolons")
    if awaited:
        what = f"the condition {shown(condition)} lacks a closing {shown(awaited[-1])}"
        raise Mistake("DECLARE_CHECK", what, fix="close the bracket")


def _row(kind: str, text: str, columns: Sequence[str], condition: str, on_fail: OnFail, **arguments: Any) -> Check:
    shown_text = text if kind == "condition" else f"{kind}({text})"
    _refuse_unless(on_fail, ON_FAIL, shown_text)
    return Check(kind, shown_text, tuple(columns), condition, tuple(arguments.items()), on_fail)


def _table(
    kind: str, text: str, columns: Sequence[str], arguments: tuple[tuple[str, Any], ...], on_fail: OnFail
) -> Check:
    if on_fail in ON_FAIL and on_fail not in _OF_TABLES:
        what = f"`{kind}({text})` is about the whole table, so it has no rows to {_set_aside(on_fail)}"
        raise Mistake("DECLARE_CHECK", what, fix='use on_fail="stop" or on_fail="warn"')
    _refuse_unless(on_fail, _OF_TABLES, f"{kind}({text})")
    return Check(kind, f"{kind}({text})", tuple(columns), None, arguments, on_fail)


def _set_aside(on_fail: str) -> str:
    return "drop" if on_fail == "drop" else "put into quarantine"


def _refuse_unless(on_fail: Any, allowed: Sequence[str], text: str) -> None:
    if on_fail not in allowed:
        close = nearest(on_fail, allowed) if isinstance(on_fail, str) else None
        what = f"`{text}` has on_fail={shown(on_fail)}" + (f"; close: `{close}`" if close else "")
        raise Mistake("DECLARE_CHECK", what, fix=f"use one of {', '.join(allowed)}")


def _some(columns: Sequence[str], kind: str) -> str:
    if not columns:
        raise Mistake("DECLARE_CHECK", f"{kind} names no column", fix=f'write rn.{kind}("order_id")')
    for one in columns:
        column(one)
    return ", ".join(columns)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_shown(one) for one in value) + "]"
    return repr(value) if isinstance(value, str | bool | int | float | None) else str(value)
