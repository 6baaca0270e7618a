"""Parse checks that SQL tasks write as text: `not_null(order_id)`, `accepted(status, ['a', 'b'])`, `revenue >= 0`."""

import ast
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from runnel.declare.model.flow import Check
from runnel.declare.options import checks
from runnel.errors import Mistake, close_hint
from runnel.names import quote_value

_MIN_SIMILARITY = 0.85  # below this similarity the name may be a Spark function: isnotnull(x)


def parse_check(text: str) -> Check:
    """Return the check that a text describes; a text that names no known kind of check is a condition.

    >>> parse_check("between(x, 0, 5, on_fail='drop')").condition
    '`x` >= 0 and `x` <= 5'
    >>> parse_check("revenue >= 0").kind
    'condition'
    """
    call = _parse_call(text)
    if call is None or not isinstance(call.func, ast.Name):
        return _unwrap(checks.check)(text)
    name = call.func.id.lower()
    if name == "check":
        return _call_constructor(checks.check, text, call)
    if name in checks.BY_NAME:
        return _call_constructor(checks.BY_NAME[name], text, call)
    close = get_close_matches(name, checks.BY_NAME, n=1, cutoff=_MIN_SIMILARITY)
    if close:
        what = f"there is no check `{name}`" + close_hint(close[0])
        raise Mistake("DECLARE_CHECK", what, fix=f"write {close[0]}(...)")
    return _unwrap(checks.check)(text)


def _parse_call(text: str) -> ast.Call | None:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.Call) else None


def _call_constructor(constructor: Callable[..., Check], text: str, call: ast.Call) -> Check:
    kwargs = {keyword.arg: _parse_argument(keyword.value, text) for keyword in call.keywords if keyword.arg}
    args = [_parse_argument(node, text) for node in call.args]
    try:
        return _unwrap(constructor)(*args, **kwargs)
    except TypeError as error:
        raise Mistake(
            "DECLARE_CHECK", f"{quote_value(text)}: {error}", fix=f"see {constructor.__name__} in docs/flows.md"
        ) from None


def _unwrap(constructor: Callable[..., Check]) -> Callable[..., Check]:
    """Return the constructor without the wrapper that records mistakes: a SQL task reports them at another line."""
    inner: Callable[..., Check] = constructor.__wrapped__  # type: ignore[attr-defined]
    return inner


def _parse_argument(node: ast.expr, text: str) -> Any:
    """Return the value of a literal, or the text of a name or dotted name: a column."""
    if isinstance(node, ast.Name | ast.Attribute):
        return ast.unparse(node)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        fix = "use column names, numbers, quoted text and lists of them"
        what = f"{quote_value(ast.unparse(node))} in {quote_value(text)} is neither a column nor a value"
        raise Mistake("DECLARE_CHECK", what, fix=fix) from None
