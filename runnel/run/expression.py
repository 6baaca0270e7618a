"""Expressions of Spark's analysed plans as texts: two that have the same text have the same value in a row. Pure.

A text names columns by id, as `#5#`, and those of the query around a subquery as `^5^`. Names and aliases do not count,
nor does a cast that changes no value.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runnel.run.logical import first, flat, number
from runnel.run.operators import NONDETERMINISTIC

_COLUMN = re.compile(r"#(\d+)#")
_OUTER = re.compile(r"\^(\d+)\^")
_MARKS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "#^@"}  # so that no literal looks like a column
_MOST = 200  # parts of an expression; a longer one is never a slice's key
# What says nothing about the value: how Spark got there, the session's time zone, and whether errors are nulls.
_SILENT = frozenset(("class", "num-children", "timeZoneId", "evalMode", "evalContext"))
_WHOLE = ("byte", "short", "integer", "long")


@dataclass(eq=False)
class Expression:
    """An expression of a plan. `text` is None where its value is not given by the row, or can't be known."""

    kind: str
    item: Mapping[str, Any]
    text: str | None = None
    children: list["Expression"] = field(default_factory=list)


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
    """Return the text of a flat expression."""
    found = parse(items)
    return found.text if found else None


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
            left, right = (child.text for child in one.children)
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
    if found.kind == "OuterReference":
        outer = first(item.get("e"))
        return f"^{number(outer)}^" if outer and number(outer) >= 0 else None
    known = [one for one in inner if one is not None]
    if len(known) < len(inner) or _is_opaque(found):
        return None
    if found.kind == "Alias" or _is_idle_cast(found):
        return known[0]
    if "replacement" in item and len(known) == 1:  # nvl, ifnull and the like: what they stand for
        return known[0]
    if found.kind == "ParseToDate" and len(known) == 1:
        return _written("Cast", {"child": 0, "dataType": "date"}, known)
    return _written(found.kind, {key: part for key, part in item.items() if key not in _SILENT}, known)


def _written(kind: str, fields: Mapping[str, Any], inner: Sequence[str]) -> str:
    told = json.dumps(fields, sort_keys=True).translate(_MARKS)
    return f"{kind}{told}({','.join(inner)})"


def _is_opaque(found: Expression) -> bool:
    """Tell whether the value depends on more than the JSON shows."""
    if found.kind in NONDETERMINISTIC or found.kind.endswith(("UDF", "UDAF")) or "plan" in found.item:
        return True
    if "replacement" in found.item or found.kind == "Alias":
        return False
    shown = [part for key, part in found.item.items() if key not in _SILENT]
    return any(part is None or next(flat(part), None) is not None for part in shown)


def _is_idle_cast(found: Expression) -> bool:
    if found.kind != "Cast":
        return False
    before, after = found.children[0].item.get("dataType"), found.item.get("dataType")
    if before in _WHOLE and after in _WHOLE:
        return _WHOLE.index(after) >= _WHOLE.index(before)
    return before is not None and before == after
