"""Turn expressions of Spark's analysed plans into canonical texts: equal texts have equal values in a row. Pure.

A text names columns by id, as `#5#`, and columns of the outer query inside a subquery as `^5^`. Names and aliases are
left out. A cast to a wider integer changes no value, so it is left out too, but only at the top level: `hash(i)` is
not `hash(cast(i as long))`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runnel.run.analysis.logical_plan import get_expression_id, get_outermost
from runnel.run.analysis.operators import NONDETERMINISTIC

_COLUMN = re.compile(r"#(\d+)#")
_OUTER = re.compile(r"\^(\d+)\^")
_BOUND = re.compile(r"~level(\d+):")
_MARKS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "#^@~"}  # escaped, so that no literal looks like a column
_MOST = 200  # parts of an expression; a longer one is never a slice's key
# Fields that say nothing about the value: class names, the session's time zone, and whether errors become null.
_IGNORED_FIELDS = frozenset(("class", "num-children", "timeZoneId", "evalMode", "evalContext"))
_WHOLE = ("byte", "short", "integer", "long")
_COMMON = "CommonExpression()"
# Expressions whose fields only repeat their children: CASE, whose last child is ELSE if their number is odd.
_OF_CHILDREN = ("CaseWhen", "CommonExpressionDef", "With")


@dataclass(eq=False)
class PlanExpression:
    """An expression of a plan. `text` is None if its value does not depend on the row alone, or is unknown."""

    kind: str
    item: Mapping[str, Any]
    text: str | None = None
    children: list["PlanExpression"] = field(default_factory=list)

    @property
    def value_text(self) -> str | None:
        """Return the text without outer casts that change no value: equal texts have equal values."""
        inner = self
        while inner.kind == "Alias" or _is_idle_cast(inner):
            inner = inner.children[0]
        if inner.kind != "Coalesce" or inner.text is None:
            return inner.text
        return _format_text("Coalesce", {"children": list(range(len(inner.children)))}, _list_value_texts(inner))


def parse_expression(items: Sequence[dict[str, Any]] | None) -> PlanExpression | None:
    """Parse the flat JSON list of an expression into a tree."""
    pending: list[PlanExpression] = []
    for item in reversed(items or ()):
        expression = PlanExpression(item["class"].rpartition(".")[2].rstrip("$"), item)
        expression.children = [pending.pop() for _ in range(item["num-children"])]
        expression.text = _build_text(expression) if len(items or ()) <= _MOST else None
        pending.append(expression)
    return pending[-1] if pending else None


def read_value_text(items: Sequence[dict[str, Any]] | None) -> str | None:
    """Return the text of the value of a flat expression, whatever its type."""
    expression = parse_expression(items)
    return expression.value_text if expression else None


def read_exact_text(items: Sequence[dict[str, Any]] | None) -> str | None:
    """Return the text of a flat expression, with the casts that change its type only."""
    expression = parse_expression(items)
    return expression.text if expression else None


def read_value_texts(value: Any) -> list[str]:
    """Return the texts of a field that lists expressions."""
    return [text for text in map(read_value_text, value or ()) if text is not None]


def column_text(id_: int) -> str:
    """Return the text of a column.

    >>> column_text(5)
    '#5#'
    """
    return f"#{id_}#"


def find_column_ids(text: str) -> frozenset[int]:
    """Return the ids of the columns in a text, without those of the outer query.

    >>> sorted(find_column_ids("Add(#5#,#7#,^9^)"))
    [5, 7]
    """
    return frozenset(map(int, _COLUMN.findall(text)))


def to_outer_query_text(text: str) -> str:
    """Return a text of a subquery in the terms of the outer query.

    >>> to_outer_query_text("Upper(^9^)")
    'Upper(#9#)'
    """
    return _OUTER.sub(r"#\1#", text)


def coalesce_text(left: str, right: str) -> str:
    """Return the text of `coalesce(left, right)`."""
    return _format_text("Coalesce", {"children": [0, 1]}, (left, right))


def is_null_with_column(text: str) -> bool:
    """Return whether an expression is null if its column is null: a column, or a cast of one."""
    return bool(re.fullmatch(r"(?:Cast\{[^{}]*\}\()*#\d+#\)*", text))


def list_equalities(condition: PlanExpression | None) -> Iterator[tuple[str, str]]:
    """Yield the pairs of texts that are equal in every row for which a condition holds."""
    for condition_part in split_condition(condition, "And"):
        if condition_part.kind in ("EqualTo", "EqualNullSafe"):
            left, right = (child.value_text for child in condition_part.children)
            if left is not None and right is not None:
                yield left, right


def split_condition(condition: PlanExpression | None, *connectives: str) -> Iterator[PlanExpression]:
    """Yield the parts of a condition that these connectives join."""
    pending = [condition] if condition else []
    while pending:
        expression = pending.pop()
        if expression.kind in connectives:
            pending.extend(reversed(expression.children))
        else:
            yield expression


def _build_text(expression: PlanExpression) -> str | None:
    item, optional_texts = expression.item, [child.text for child in expression.children]
    if expression.kind == "AttributeReference":
        return column_text(get_expression_id(dict(item)))
    if expression.kind == "NamedLambdaVariable":
        return f"~{get_expression_id(dict(item))}~"
    if expression.kind == "CommonExpressionRef":
        return _COMMON
    if expression.kind == "OuterReference":
        outer = get_outermost(item.get("e"))
        return f"^{get_expression_id(outer)}^" if outer and get_expression_id(outer) >= 0 else None
    child_texts = [child_text for child_text in optional_texts if child_text is not None]
    if len(child_texts) < len(optional_texts) or _is_opaque(expression):
        return None
    if expression.kind in ("Alias", "CommonExpressionDef") or _has_same_type(expression):
        return child_texts[0]
    if expression.kind == "CaseWhen":
        return _format_text(expression.kind, {}, child_texts)
    if "replacement" in item and len(child_texts) == 1:  # nvl, ifnull and the like: their replacement
        return child_texts[0]
    if expression.kind == "ParseToDate" and len(child_texts) == 1:
        return _format_text("Cast", {"child": 0, "dataType": "date"}, child_texts)
    if expression.kind == "With":
        return _add_definition(child_texts)
    if expression.kind == "LambdaFunction":
        return _number_lambda_variables(child_texts)
    if expression.kind == "Literal" and item.get("value") is None:
        return _format_text("Null", {"dataType": item["dataType"]}, ())
    return _format_text(
        expression.kind, {key: value for key, value in item.items() if key not in _IGNORED_FIELDS}, child_texts
    )


def _add_definition(child_texts: Sequence[str]) -> str | None:
    """Return the text of a `With`, whose common expression the JSON does not name."""
    if len(child_texts) != 2 or "With(" in child_texts[0]:
        return None
    return f"With({','.join(child_texts)})"


def _number_lambda_variables(child_texts: Sequence[str]) -> str:
    """Return the text of a lambda with its variables numbered by nesting level instead of by id."""
    body, *arguments = child_texts
    level = max(map(int, _BOUND.findall(body)), default=0) + 1
    for position, argument in enumerate(arguments):
        body = body.replace(argument, f"~level{level}:{position}~")
    return f"LambdaFunction[{len(arguments)}]({body})"


def _format_text(kind: str, fields: Mapping[str, Any], child_texts: Sequence[str]) -> str:
    return f"{kind}{_format_field(fields)}({','.join(child_texts)})"


def _format_field(value: Any) -> str:
    """Return a field of an expression as text; expressions inside it by their own texts."""
    if _is_expression(value):
        return read_exact_text(value) or ""
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_field, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_format_field(key)}: {_format_field(value[key])}" for key in sorted(value)) + "}"
    return json.dumps(value).translate(_MARKS)


def _list_value_texts(expression: PlanExpression) -> list[str]:
    return [text for child in expression.children if (text := child.value_text) is not None]


def _is_opaque(expression: PlanExpression) -> bool:
    """Return whether the value depends on more than the JSON shows."""
    if expression.kind in NONDETERMINISTIC or expression.kind.endswith(("UDF", "UDAF")) or "plan" in expression.item:
        return True
    if "replacement" in expression.item or expression.kind in ("Alias", "Literal", *_OF_CHILDREN):
        return False
    return any(not _is_fully_shown(value) for key, value in expression.item.items() if key not in _IGNORED_FIELDS)


def _is_fully_shown(value: Any) -> bool:
    """Return whether the JSON shows all of a field: Spark writes null for values that it can't serialize."""
    if _is_expression(value):
        return read_exact_text(value) is not None
    if isinstance(value, list | dict):
        return all(map(_is_fully_shown, value.values() if isinstance(value, dict) else value))
    return value is not None


def _is_expression(value: Any) -> bool:
    """Return whether a field, or an item of one, is an expression; CASE repeats its children that way."""
    top = get_outermost(value)
    return top is not None and "num-children" in top


def _has_same_type(expression: PlanExpression) -> bool:
    type_before = expression.children[0].item.get("dataType") if expression.kind == "Cast" else None
    return type_before is not None and type_before == expression.item.get("dataType")


def _is_idle_cast(expression: PlanExpression) -> bool:
    """Return whether a cast keeps the value, maybe in a wider type."""
    if expression.kind != "Cast":
        return False
    type_before, type_after = expression.children[0].item.get("dataType"), expression.item.get("dataType")
    if type_before in _WHOLE and type_after in _WHOLE:
        return _WHOLE.index(type_after) >= _WHOLE.index(type_before)
    return type_before is not None and type_before == type_after
