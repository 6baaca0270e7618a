"""What the leaves of a plan bring to a task with `by=`: slices, rows that are always there, or what nobody can see."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from runnel.run.expression import column, columns, text_of
from runnel.run.leaves import Leaf, leaves
from runnel.run.logical import Node, number, tree
from runnel.run.operators import LITERAL
from runnel.run.rowkeys import TRUSTED, UNIVERSAL, Group, Rows, sliced_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"`([^`]+)`")
_ASKED = ("LogicalRDD", "LogicalRelation", "DataSourceV2Relation")


def plan_of(frame: "DataFrame") -> list[Node]:
    """Return the analysed plan of a frame, the root first."""
    return tree(json.loads(frame._jdf.queryExecution().analyzed().toJSON()))


class Origins:
    """The inputs of a task as the leaves of a plan read them. Spark is asked only where the plan does not tell."""

    def __init__(self, frame: "DataFrame", keys: "Mapping[str, SliceKey]", trusted: Collection[str]) -> None:
        self._frame = frame
        self._keys = keys
        self._trusted = trusted

    def rows(self, leaf: Node) -> Rows:
        """Return what a leaf brings."""
        if leaf.kind in LITERAL:
            return UNIVERSAL
        if leaf.kind not in _ASKED:
            return TRUSTED
        name = leaf.alias if leaf.kind == "DataSourceV2Relation" else None
        asked = Leaf(table=name) if name else self._asked.get(leaf.attributes[0][0] if leaf.attributes else -1, Leaf())
        if asked.hides or asked.table in self._trusted:
            return TRUSTED
        key = self._keys.get(asked.table or "")
        group = key.at(leaf) if key else None
        if group is not None and not all(group):
            return TRUSTED  # an expression that can't be followed
        return sliced_by((group,)) if group is not None else UNIVERSAL

    @cached_property
    def _asked(self) -> dict[int, Leaf]:
        return leaves(self._frame)


class SliceKey:
    """The expressions that name the slice of a row of an input, for each place where a plan reads it."""

    def __init__(self, frame: "DataFrame", expressions: Sequence[str]) -> None:
        self._frame = frame
        self._expressions = expressions

    def at(self, leaf: Node) -> Group:
        """Return the key in terms of the columns of a leaf: Spark gives them new ids where a table is read twice."""
        ids = {name.lower(): one for one, name in leaf.attributes}
        return tuple(frozenset(_translated(text, names, ids)) for text, names in self._resolved)

    @cached_property
    def _resolved(self) -> list[tuple[str | None, Mapping[int, str]]]:
        names = [found[1] for text in self._expressions if (found := _NAME.fullmatch(text))]
        if len(names) == len(self._expressions):
            return [(column(0), {0: name}) for name in names]
        project = plan_of(self._frame.selectExpr(*self._expressions))[0]
        known = {number(one): str(one["name"]) for one in project.expressions if one["class"].endswith("Reference")}
        return [(text_of(item), known) for item in project.fields["projectList"]]


def _translated(text: str | None, names: Mapping[int, str], ids: Mapping[str, int]) -> Iterator[str]:
    """Yield a text with the ids that its columns have elsewhere; nothing where one of them is not there."""
    found = {one: ids.get(names.get(one, "").lower(), -1) for one in columns(text or "")}
    if text is not None and -1 not in found.values():
        yield re.sub(r"#(\d+)#", lambda match: column(found[int(match[1])]), text)
