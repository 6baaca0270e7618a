"""What the leaves of a plan bring to a task with `by=`: slices, rows that are always there, or what nobody can see."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from runnel.declare.model.flow import Task
from runnel.errors import Mistake, listed
from runnel.names import shown
from runnel.run.analysis.expression_text import column, columns, exact_text_of, text_of
from runnel.run.analysis.key_propagation import UNIVERSAL, Group, Rows, Unfollowed, sliced_by
from runnel.run.analysis.logical_plan import Node, first, number, tree
from runnel.run.analysis.operators import LITERAL, NONDETERMINISTIC
from runnel.run.analysis.plan_leaves import Leaf, leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"`([^`]+)`")
_ASKED = ("LogicalRDD", "LogicalRelation", "DataSourceV2Relation")


def plan_of(frame: "DataFrame") -> list[Node]:
    """Return the analysed plan of a frame, the root first."""
    return tree(json.loads(frame._jdf.queryExecution().analyzed().toJSON()))


class Origins:
    """The inputs of a task as the leaves of a plan read them. Spark is asked only where the plan does not tell."""

    def __init__(self, frame: "DataFrame", keys: "Mapping[str, SliceKey]") -> None:
        self._frame = frame
        self._keys = keys

    def rows(self, leaf: Node) -> Rows:
        """Return what a leaf brings. Raises Unfollowed where nobody can see it."""
        if leaf.kind in LITERAL:
            return UNIVERSAL
        if leaf.kind not in _ASKED:
            raise Unfollowed(f"Runnel does not know what `{leaf.kind}` reads")
        name = leaf.alias if leaf.kind == "DataSourceV2Relation" else None
        asked = Leaf(table=name) if name else self._asked.get(leaf.attributes[0][0] if leaf.attributes else -1, Leaf())
        if asked.hides:
            raise Unfollowed("it goes through an RDD or a checkpoint")
        key = self._keys.get(asked.table or "")
        return sliced_by((key.at(leaf),)) if key else UNIVERSAL

    @cached_property
    def _asked(self) -> dict[int, Leaf]:
        return leaves(self._frame)


class SliceKey:
    """The expressions that name the slice of a row of an input, for each place where a plan reads it.

    `spare` is how many slices before its own a slice may read, as `lookback` promises.
    """

    def __init__(self, frame: "DataFrame", expressions: Sequence[str], spare: int = 0) -> None:
        self._frame = frame
        self._expressions = expressions
        self._spare = spare

    def at(self, leaf: Node) -> Group:
        """Return the key in terms of the columns of a leaf: Spark gives them new ids where a table is read twice."""
        ids = {name.lower(): one for one, name in leaf.attributes}
        keys = tuple(frozenset(_translated(text, names, ids)) for text, names in self._resolved)
        for expression, texts in zip(self._expressions, keys, strict=True):
            if not texts:
                raise Unfollowed(f"Runnel can't follow the expression {shown(expression)} of by_input=")
        return Group(keys, self._spare)

    @cached_property
    def _resolved(self) -> list[tuple[str | None, Mapping[int, str]]]:
        names = [found[1] for text in self._expressions if (found := _NAME.fullmatch(text))]
        if len(names) == len(self._expressions):
            return [(column(0), {0: name}) for name in names]
        node = plan_of(self._frame.selectExpr(*self._expressions))[0]
        texts = [text_of(item) for item in node.fields["projectList"]]
        references = list(node.expressions)
        while (node := node.children[0]).kind in ("Project", "Filter"):  # window(...) is computed below
            references += node.expressions
            texts = [_with_definitions(text, node.fields.get("projectList") or ()) for text in texts]
        known = {number(one): str(one["name"]) for one in references if one["class"].endswith("Reference")}
        return [(text, known) for text in texts]


def refuse_unfit_expressions(task: Task, frame: "DataFrame", expressions: Sequence[str]) -> None:
    """Refuse expressions of `by_input` that may differ when computed again, or give a row no slice or several."""
    if all(_NAME.fullmatch(text) for text in expressions):
        return
    plan = frame.selectExpr(*expressions)._jdf.queryExecution().analyzed()
    nodes = tree(json.loads(plan.toJSON()))
    kinds = {item["class"].rpartition(".")[2].rstrip("$") for node in nodes for item in node.expressions}
    names = sorted(NONDETERMINISTIC[kind] for kind in kinds if kind in NONDETERMINISTIC)
    is_same = all(plan.expressions().apply(place).deterministic() for place in range(len(expressions)))
    if names or not is_same:
        what = f"uses {listed(names)}, which" if names else "has a value that"
        raise _unfit(task, expressions, f"{what} may differ whenever it is computed")
    node = nodes[0]
    while node.kind in ("Project", "Filter"):
        if node.subqueries:
            raise _unfit(task, expressions, "looks at other rows")
        node = node.children[0]
    if node.kind not in ("SubqueryAlias", "View", *_ASKED):
        raise _unfit(task, expressions, "looks at other rows, or puts a row into several slices")


def _unfit(task: Task, expressions: Sequence[str], why: str) -> Mistake:
    but = f"{shown(', '.join(expressions))} in by_input= {why}"
    what = f"task `{task.table}` is computed by {listed(task.options.by)}, but {but}"
    fix = "name the slice of a row by an expression of its own columns that always has the same value"
    return Mistake("RUN_NOT_BY", what, at=str(task.place), fix=fix)


def _with_definitions(text: str | None, items: Sequence[Any]) -> str | None:
    """Return a text in which the columns that a projection makes are replaced by what they are made from."""
    for item in items:
        top = first(item)
        if text is None or top is None or not top["class"].endswith(".Alias") or column(number(top)) not in text:
            continue
        made = exact_text_of(item)
        text = text.replace(column(number(top)), made) if made is not None else None
    return text


def _translated(text: str | None, names: Mapping[int, str], ids: Mapping[str, int]) -> Iterator[str]:
    """Yield a text with the ids that its columns have elsewhere; nothing where one of them is not there."""
    found = {one: ids.get(names.get(one, "").lower(), -1) for one in columns(text or "")}
    if text is not None and -1 not in found.values():
        yield re.sub(r"#(\d+)#", lambda match: column(found[int(match[1])]), text)
