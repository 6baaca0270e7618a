"""Expressions of Spark's analysed plans as texts: two that have the same text have the same value in a row. Pure.

A text names columns by id, as `#5#`, and those of the query around a subquery as `^5^`. Names and aliases do not count.
A cast to a wider whole number changes no value, so it does not count either, but only outside of other functions:
`hash(i)` is not `hash(cast(i as long))`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runnel.run.analysis.logical_plan import first, number
from runnel.run.analysis.operators import NONDETERMINISTIC

_COLUMN = re.compile(r"#(\d+)#")
_OUTER = re.compile(r"\^(\d+)\^")
_BOUND = re.compile(r"~level(\d+):")
_MARKS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "#^@~"}  # so that no literal looks like a column
_MOST = 200  # parts of an expression; a longer one is never a slice's key
# What says nothing about the value: how Spark got there, the session's time zone, and whether errors are nulls.
_SILENT = frozenset(("class", "num-children", "timeZoneId", "evalMode", "evalContext"))
_WHOLE = ("byte", "short", "integer", "long")
_COMMON = "CommonExpression()"
# Expressions whose fields say no more than their children: CASE, whose last child is ELSE if their number is odd.
_OF_CHILDREN = ("CaseWhen", "CommonExpressionDef", "With")


@dataclass(eq=False)
class Expression:
    """An expression of a plan. `text` is None where its value is not given by the row, or can't be known."""

    kind: str
    item: Mapping[str, Any]
    text: str | None = None
    children: list["Expression"] = field(default_factory=list)

    @property
    def value_text(self) -> str | None:
        """Return the text without casts around it that change no value: equal ones are equal, maybe in other types."""
        inner = self
        while inner.kind == "Alias" or _is_idle_cast(inner):
            inner = inner.children[0]
        if inner.kind != "Coalesce" or inner.text is None:
            return inner.text
        return _written("Coalesce", {"children": list(range(len(inner.children)))}, _value_texts(inner))


def parse(items: Sequence[dict[str, Any]] | None) -> Expression | None:
    """Return a flat expression as a tree."""
    ready: list[Expression] = []
    for item in reversed(items or ()):
        found = Expression(item["class"].rpartition(".")[2].rstrip("$"), item)
        found.children = [ready.pop() for _ in range(item["num-children"])]
        found.text = _text(found) if len(items or ()) <= _MOST else None
        ready.append(found)
    return ready[-1] if ready else None


def text_of(items: Sequence[dict[str, Any]] | None) -> str | None:
    """Return the text of the value of a flat expression, whatever its type."""
    expression = parse(items)
    return expression.value_text if expression else None


def exact_text_of(items: Sequence[dict[str, Any]] | None) -> str | None:
    """Return the text of a flat expression, with the casts that change its type only."""
    expression = parse(items)
    return expression.text if expression else None


def texts(value: Any) -> list[str]:
    """Return the texts of a field that lists expressions."""
    return [text for text in map(text_of, value or ()) if text is not None]


def column(id_: int) -> str:
    """Return the text of a column.

    >>> column(5)
    '#5#'
    """
    return f"#{id_}#"


def columns(text: str) -> frozenset[int]:
    """Return the ids of the columns in a text, but none of the query around.

    >>> sorted(columns("Add(#5#,#7#,^9^)"))
    [5, 7]
    """
    return frozenset(map(int, _COLUMN.findall(text)))


def inward(text: str) -> str:
    """Return a text of a subquery as the query around it has it.

    >>> inward("Upper(^9^)")
    'Upper(#9#)'
    """
    return _OUTER.sub(r"#\1#", text)


def coalesced(left: str, right: str) -> str:
    """Return the text of `coalesce(left, right)`."""
    return _written("Coalesce", {"children": [0, 1]}, (left, right))


def turns_null(text: str) -> bool:
    """Tell whether an expression is null where its columns are: a column, or a cast of one."""
    return bool(re.fullmatch(r"(?:Cast\{[^{}]*\}\()*#\d+#\)*", text))


def equalities(condition: Expression | None) -> Iterator[tuple[str, str]]:
    """Yield what a condition says to be equal wherever it holds."""
    for one in parts(condition, "And"):
        if one.kind in ("EqualTo", "EqualNullSafe"):
            left, right = (child.value_text for child in one.children)
            if left is not None and right is not None:
                yield left, right


def parts(condition: Expression | None, *connectives: str) -> Iterator[Expression]:
    """Yield what connectives join to a condition."""
    todo = [condition] if condition else []
    while todo:
        one = todo.pop()
        if one.kind in connectives:
            todo.extend(reversed(one.children))
        else:
            yield one


def _text(found: Expression) -> str | None:
    item, inner = found.item, [child.text for child in found.children]
    if found.kind == "AttributeReference":
        return column(number(dict(item)))
    if found.kind == "NamedLambdaVariable":
        return f"~{number(dict(item))}~"
    if found.kind == "CommonExpressionRef":
        return _COMMON
    if found.kind == "OuterReference":
        outer = first(item.get("e"))
        return f"^{number(outer)}^" if outer and number(outer) >= 0 else None
    known = [one for one in inner if one is not None]
    if len(known) < len(inner) or _is_opaque(found):
        return None
    if found.kind in ("Alias", "CommonExpressionDef") or _has_same_type(found):
        return known[0]
    if found.kind == "CaseWhen":
        return _written(found.kind, {}, known)
    if "replacement" in item and len(known) == 1:  # nvl, ifnull and the like: what they stand for
        return known[0]
    if found.kind == "ParseToDate" and len(known) == 1:
        return _written("Cast", {"child": 0, "dataType": "date"}, known)
    if found.kind == "With":
        return _with_definition(known)
    if found.kind == "LambdaFunction":
        return _with_bound_variables(known)
    if found.kind == "Literal" and item.get("value") is None:
        return _written("Null", {"dataType": item["dataType"]}, ())
    return _written(found.kind, {key: part for key, part in item.items() if key not in _SILENT}, known)


def _with_definition(known: Sequence[str]) -> str | None:
    """Return the text of an expression that is used several times in another, which the JSON does not name."""
    if len(known) != 2 or "With(" in known[0]:
        return None
    return f"With({','.join(known)})"


def _with_bound_variables(known: Sequence[str]) -> str:
    """Return the text of a lambda whose variables are numbered by how deep it is, and no more by their ids."""
    body, *arguments = known
    level = max(map(int, _BOUND.findall(body)), default=0) + 1
    for place, argument in enumerate(arguments):
        body = body.replace(argument, f"~level{level}:{place}~")
    return f"LambdaFunction[{len(arguments)}]({body})"


def _written(kind: str, fields: Mapping[str, Any], inner: Sequence[str]) -> str:
    return f"{kind}{_shown(fields)}({','.join(inner)})"


def _shown(part: Any) -> str:
    """Return a field of an expression as text; expressions in it, which `_is_opaque` has seen, by their own."""
    if _is_expression(part):
        return exact_text_of(part) or ""
    if isinstance(part, list):
        return "[" + ", ".join(map(_shown, part)) + "]"
    if isinstance(part, dict):
        return "{" + ", ".join(f"{_shown(key)}: {_shown(part[key])}" for key in sorted(part)) + "}"
    return json.dumps(part).translate(_MARKS)


def _value_texts(found: Expression) -> list[str]:
    return [text for child in found.children if (text := child.value_text) is not None]


def _is_opaque(found: Expression) -> bool:
    """Tell whether the value depends on more than the JSON shows."""
    if found.kind in NONDETERMINISTIC or found.kind.endswith(("UDF", "UDAF")) or "plan" in found.item:
        return True
    if "replacement" in found.item or found.kind in ("Alias", "Literal", *_OF_CHILDREN):
        return False
    return any(not _is_shown(part) for key, part in found.item.items() if key not in _SILENT)


def _is_shown(part: Any) -> bool:
    """Tell whether the JSON shows all of a field: Spark writes null for what it can't write, such as options."""
    if _is_expression(part):
        return exact_text_of(part) is not None
    if isinstance(part, list | dict):
        return all(map(_is_shown, part.values() if isinstance(part, dict) else part))
    return part is not None


def _is_expression(part: Any) -> bool:
    """Tell whether a field, or an item of one, is a whole expression, as those of CASE are beside its children."""
    top = first(part)
    return top is not None and "num-children" in top


def _has_same_type(found: Expression) -> bool:
    before = found.children[0].item.get("dataType") if found.kind == "Cast" else None
    return before is not None and before == found.item.get("dataType")


def _is_idle_cast(found: Expression) -> bool:
    """Tell whether a cast gives the same value, maybe in a wider type."""
    if found.kind != "Cast":
        return False
    before, after = found.children[0].item.get("dataType"), found.item.get("dataType")
    if before in _WHOLE and after in _WHOLE:
        return _WHOLE.index(after) >= _WHOLE.index(before)
    return before is not None and before == after
