"""Checks as text, as SQL tasks write them: `not_null(order_id)`, `accepted(status, ['a', 'b'])`, `revenue >= 0`."""

import ast
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from runnel.declare.model.flow import Check
from runnel.declare.options import checks
from runnel.errors import Mistake
from runnel.names import shown

_ALIKE = 0.85  # below, it may well be a function of Spark's: isnotnull(x)


def parse(text: str) -> Check:
    """Return the check that a text describes; what is none of the known kinds is a condition.

    >>> parse("between(x, 0, 5, on_fail='drop')").condition
    '`x` >= 0 and `x` <= 5'
    >>> parse("revenue >= 0").kind
    'condition'
    """
    call = _call(text)
    if call is None or not isinstance(call.func, ast.Name):
        return _pure(checks.check)(text)
    name = call.func.id.lower()
    if name == "check":
        return _made(checks.check, text, call)
    if name in checks.BY_NAME:
        return _made(checks.BY_NAME[name], text, call)
    close = get_close_matches(name, checks.BY_NAME, n=1, cutoff=_ALIKE)
    if close:
        what = f"there is no check `{name}`; close: `{close[0]}`"
        raise Mistake("DECLARE_CHECK", what, fix=f"write {close[0]}(...)")
    return _pure(checks.check)(text)


def _call(text: str) -> ast.Call | None:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.Call) else None


def _made(make: Callable[..., Check], text: str, call: ast.Call) -> Check:
    named = {word.arg: _value(word.value, text) for word in call.keywords if word.arg}
    given = [_value(one, text) for one in call.args]
    try:
        return _pure(make)(*given, **named)
    except TypeError as error:
        raise Mistake("DECLARE_CHECK", f"{shown(text)}: {error}", fix=f"see {make.__name__} in docs/flows.md") from None


def _pure(make: Callable[..., Check]) -> Callable[..., Check]:
    """Return the function below the one that keeps mistakes at the caller's line: here the line is another."""
    inner: Callable[..., Check] = make.__wrapped__  # type: ignore[attr-defined]
    return inner


def _value(node: ast.expr, text: str) -> Any:
    """Return a literal, or a name or dotted name as text: a column."""
    if isinstance(node, ast.Name | ast.Attribute):
        return ast.unparse(node)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        fix = "use column names, numbers, quoted text and lists of them"
        what = f"{shown(ast.unparse(node))} in {shown(text)} is neither a column nor a value"
        raise Mistake("DECLARE_CHECK", what, fix=fix) from None
