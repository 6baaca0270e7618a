"""Tell from its analysed plan whether a task with `by=` really is computed slice by slice. Nothing is computed here.

The rows of a slice must be the same whether all slices are read or only it. Refused is what the plan contradicts; what
it can't show is trusted.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runnel.declare.flow import Task
from runnel.run.expression import column, columns, equalities, inward, parse, parts, text_of, texts
from runnel.run.logical import Node, first, number
from runnel.run.operators import ROWWISE
from runnel.run.origins import Origins, SliceKey, plan_of
from runnel.run.rowkeys import (
    TRUSTED,
    UNIVERSAL,
    Group,
    Rows,
    at,
    common,
    joined,
    lacking,
    merged,
    placed,
    renamed,
    sliced_by,
)
from runnel.run.unaligned import other_column, unaligned
from runnel.run.usage import Ids, outputs_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STACKED = ("Union", "Intersect", "Except")
_JOINS = ("Join", "LateralJoin", "AsOfJoin")
_MADE = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
# Operators that bring rows together, with the field that says which; a limit brings all of them together.
_GATHERING = {
    "Aggregate": "groupingExpressions",
    "Window": "partitionSpec",
    "Deduplicate": "keys",
    "DeduplicateWithinWatermark": "keys",
    "GlobalLimit": None,
    "LocalLimit": None,
    "Offset": None,
    "Tail": None,
}


def refuse_unaligned(
    task: Task,
    frame: "DataFrame",
    sliced: Mapping[str, tuple[str, ...]],
    trusted: Collection[str],
    frames: "Mapping[str, DataFrame]",
) -> None:
    """Raise a mistake where the plan of a task's frame shows that a slice is not made of its own rows alone.

    `sliced` has, by identifier, the expressions that name the slice of an input's row; `trusted` are the inputs whose
    slices may meet; any other is there as a whole. `frames` are the inputs as the task gets them.
    """
    nodes = plan_of(frame)
    keys = {name: SliceKey(frames[name], found) for name, found in sliced.items() if name not in trusted}
    alignment = _Alignment(task, nodes, Origins(frame, keys, trusted))
    found = alignment.rows[nodes[0]]
    if found.kind != "sliced":
        return
    key, ids = alignment.only(found), alignment.outputs[nodes[0]]
    names = [name.lower() for name in frame.columns]
    for place, name in enumerate(task.options.by):
        wanted = name.strip("`").lower()
        if wanted not in names:
            raise other_column(task, place, is_there=False)
        if ids is not None and column(ids[names.index(wanted)]) not in key[place]:
            raise other_column(task, place, is_there=True)


class _Alignment:
    """What is known of the rows of each operator of a plan, from its leaves up."""

    def __init__(self, task: Task, nodes: Sequence[Node], origins: Origins) -> None:
        self._task = task
        self._origins = origins
        self._defined: dict[int, Node] = {}  # CTEs
        self._inside = {one for node in nodes for query in node.subqueries for one in _upwards(query)}
        self.outputs: Mapping[Node, Ids] = outputs_of(nodes)
        self.rows: dict[Node, Rows] = {}
        for node in _upwards(nodes[0]):
            self.rows[node] = self._found(node)

    def only(self, rows: Rows, node: Node | None = None) -> Group:
        """Return the one key of rows; refuse those that a join has made from several slices."""
        if len(rows.groups) != 1:
            raise unaligned(self._task, "Join", is_inside=node in self._inside)
        return rows.groups[0]

    def _found(self, node: Node) -> Rows:
        inner = [self.rows[child] for child in node.children]
        if node.kind == "CTERelationRef":
            return self._referred(node)
        if not inner:
            return self._origins.rows(node)
        if node.kind == "CTERelationDef":
            self._defined[node.fields["id"]] = node
        if node.kind in _STACKED:
            return self._stacked(node, inner)
        if node.kind in _JOINS:
            return self._linked(node, self._joined(node))
        if inner[-1].kind == "trusted" or any("UDTF" in one["class"] for one in node.expressions):
            return TRUSTED
        return self._passed(node, self._linked(node, _filtered(node, inner[-1])))

    def _passed(self, node: Node, rows: Rows) -> Rows:
        """Return the rows of an operator with one child, from those of the child."""
        if rows.kind != "sliced":
            return rows
        if node.kind in _GATHERING or node.kind == "Distinct":
            self._require(node, self.only(rows, node))
        elif node.kind not in ROWWISE and node.kind != "Sample":
            return TRUSTED
        if node.kind == "Expand" and node.fields.get("projections"):
            return sliced_by(tuple(_expanded(node, group) for group in rows.groups))
        if node.kind in (*_MADE, "Expand"):
            names = list(_names(node.fields.get(_MADE.get(node.kind, "")) or ()))
            return sliced_by(tuple(renamed(group, names, self.outputs[node]) for group in rows.groups))
        return rows

    def _require(self, node: Node, key: Group) -> None:
        """Refuse an operator that brings rows of several slices together."""
        field = _GATHERING.get(node.kind)
        given = texts(node.fields[field]) if field else []
        if node.kind == "Distinct":
            ids = self.outputs[node]
            given = [column(one) for one in ids] if ids is not None else [text for one in key for text in one]
        places = lacking(key, given)
        if places:
            kind = "Expand" if node.kind == "Aggregate" and node.children[0].kind == "Expand" else node.kind
            raise unaligned(self._task, kind, places, is_inside=node in self._inside)

    def _joined(self, node: Node) -> Rows:
        sides = [*node.children, *(node.subqueries if node.kind == "LateralJoin" else ())][:2]
        left, right = (self.rows[side] for side in sides)
        if node.kind == "LateralJoin":
            right = Rows(right.kind, tuple(tuple(frozenset(map(inward, one)) for one in key) for key in right.groups))
        ids = [self.outputs[side] for side in sides]
        kind = str((node.fields.get("joinType") or {}).get("object")).rpartition(".")[2].rstrip("$")
        pairs = list(equalities(parse(node.fields.get("condition"))))
        found = joined(kind, left, right, pairs, [one or () for one in ids])
        if found is None:
            raise unaligned(self._task, node.kind, is_inside=node in self._inside)
        return found

    def _stacked(self, node: Node, inner: Sequence[Rows]) -> Rows:
        """Return the rows of several children with the same columns by place."""
        kinds = {one.kind for one in inner}
        ids = [self.outputs[child] for child in node.children]
        if "sliced" not in kinds or (node.kind != "Union" and "trusted" in kinds) or None in ids:
            return UNIVERSAL if kinds == {"universal"} else TRUSTED
        keys = [
            placed(self.only(one, node), own or ()) for one, own in zip(inner, ids, strict=True) if one.kind == "sliced"
        ]
        found = at(common(keys, is_whole=kinds == {"sliced"}), ids[0] or ())
        places = [place for place, known in enumerate(found) if not known]
        if places and node.kind != "Union":
            raise unaligned(self._task, node.kind, places, is_inside=node in self._inside)
        return sliced_by((found,))

    def _referred(self, node: Node) -> Rows:
        """Return the rows of a CTE under the ids of the one that refers to it."""
        definition = self._defined.get(node.fields["cteId"])
        ids = self.outputs[definition] if definition else None
        if definition is None or ids is None:
            return TRUSTED
        own = [one for one, _ in node.attributes]
        rows = self.rows[definition]
        return Rows(rows.kind, tuple(at(placed(group, ids), own) for group in rows.groups))

    def _linked(self, node: Node, rows: Rows) -> Rows:
        """Return the rows of an operator whose expressions hold subqueries; refuse those that see other slices."""
        if node.kind == "LateralJoin" or not node.subqueries:
            return rows
        compared = _compared(node)
        for item, query in _subqueries(node):
            found = self.rows[query]
            if "trusted" in (found.kind, rows.kind):
                return TRUSTED
            for group in found.groups:
                pairs = list(zip(compared.get(id(item), ()), self.outputs[query] or (), strict=False))
                outer = tuple(_outside(known, pairs) for known in group)
                if rows.kind == "universal" and all(outer):
                    rows = sliced_by((outer,))
                if not any(all(one & two for one, two in zip(own, outer, strict=True)) for own in rows.groups):
                    raise unaligned(self._task, "Subquery", is_inside=node in self._inside)
        return rows


def _upwards(root: Node) -> Iterator[Node]:
    """Yield the operators of a plan, each after its children and subqueries; a CTE before what refers to it."""
    todo = [(root, False)]
    while todo:
        node, is_ready = todo.pop()
        if is_ready:
            yield node
        else:
            todo.append((node, True))
            todo.extend((one, False) for one in reversed([*node.children, *node.subqueries]))


def _filtered(node: Node, rows: Rows) -> Rows:
    if node.kind != "Filter" or rows.kind != "sliced":
        return rows
    return sliced_by(merged(rows.groups, list(equalities(parse(node.fields["condition"])))))


def _names(items: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield which expression each column of a projection stands for."""
    for item in items:
        top = first(item)
        text = text_of(item) if top and top["class"].endswith(".Alias") else None
        if top and text is not None:
            yield text, column(number(top))


def _expanded(node: Node, group: Group) -> Group:
    """Return the key of rows that are each made several times, with other columns: what it is in all of them."""
    ids = [one for one, _ in node.attributes]
    found = []
    for projection in node.fields["projections"]:
        made = [(text, f"@{place}@") for place, item in enumerate(projection) if (text := text_of(item)) is not None]
        found.append(renamed(group, made, ()))
    return at(common(found, is_whole=True), ids)


def _subqueries(node: Node) -> Iterator[tuple[dict[str, Any], Node]]:
    """Yield each expression that holds a plan, with the root of that."""
    holding = [one for one in node.expressions if isinstance(one.get("plan"), list) and one["plan"]]
    yield from zip(holding, reversed(node.subqueries), strict=True)  # a tree lists them from the last to the first


def _compared(node: Node) -> dict[int, list[str | None]]:
    """Return what is compared with the columns of a subquery by IN, wherever null and false are the same."""
    found: dict[int, list[str | None]] = {}
    for one in parts(parse(node.fields.get("condition")), "And", "Or"):
        if one.kind == "InSubquery":
            *values, query = one.children
            found[id(query.item)] = [value.text for value in values]
    return found


def _outside(known: frozenset[str], pairs: Sequence[tuple[str | None, int]]) -> frozenset[str]:
    """Return what a key of a subquery is outside of it: what it is compared with."""
    compared = {value for value, one in pairs if value is not None and column(one) in known}
    return frozenset({inward(text) for text in known if not columns(text)} | compared)
