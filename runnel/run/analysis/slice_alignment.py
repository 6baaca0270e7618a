"""Tell from its analysed plan whether a task with `by=` really is computed slice by slice. Nothing is computed here.

The rows of a slice must be the same whether all slices are read or only it. Refused is what the plan contradicts; what
it can't show is computed in full.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runnel.declare.model.flow import Task
from runnel.errors import listed
from runnel.run.analysis.alignment_errors import other_column, too_far_back, unaligned
from runnel.run.analysis.column_usage import Ids, outputs_of
from runnel.run.analysis.expression_text import (
    Expression,
    column,
    columns,
    exact_text_of,
    inward,
    parse,
    parts,
    text_of,
    texts,
)
from runnel.run.analysis.frame_bounds import condition_of, day_of, frames
from runnel.run.analysis.key_propagation import (
    UNIVERSAL,
    Group,
    Renaming,
    Rows,
    Unfollowed,
    at,
    common,
    joined,
    lacking,
    merged,
    placed,
    renamed,
    sliced_by,
)
from runnel.run.analysis.leaf_slices import Origins, SliceKey, plan_of, refuse_unfit_expressions
from runnel.run.analysis.logical_plan import Node, first, number
from runnel.run.analysis.operators import GROUPED, NAMES, ROWWISE

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


@dataclass(frozen=True)
class SlicedInput:
    """An input that has slices: its frame, what names the slice of a row, and how many slices it looks back."""

    frame: "DataFrame"
    expressions: tuple[str, ...]
    lookback: int = 0


def unfollowed(task: Task, frame: "DataFrame", sliced: Mapping[str, SlicedInput]) -> str | None:
    """Return why the plan of a task's frame does not show that a slice is made of its own rows; None if it does.

    Raises a mistake if the plan shows that it is not. `sliced` has the inputs with slices by their identifiers; any
    other is there as a whole.
    """
    for given in sliced.values():
        refuse_unfit_expressions(task, given.frame, given.expressions)
    nodes = plan_of(frame)
    keys = {name: SliceKey(given.frame, given.expressions, given.lookback) for name, given in sliced.items()}
    try:
        alignment = _Alignment(task, nodes, Origins(frame, keys))
        rows = alignment.rows[nodes[0]]
        if rows.kind == "sliced":
            _refuse_other_columns(task, frame, alignment.only(rows), alignment.outputs[nodes[0]])
    except Unfollowed as error:
        return str(error)
    return None


def _refuse_other_columns(task: Task, frame: "DataFrame", group: Group, ids: Ids) -> None:
    """Refuse a task whose columns in `by` are not made from the key of the slice."""
    names = [name.lower() for name in frame.columns]
    for place, name in enumerate(task.options.by):
        wanted = name.strip("`").lower()
        if wanted not in names:
            raise other_column(task, place, is_there=False)
        if ids is None:
            raise Unfollowed(f"Runnel can't see what its column `{wanted}` is made from")
        if column(ids[names.index(wanted)]) not in group.keys[place]:
            if group.spare:
                raise Unfollowed(f"Runnel can't see that its column `{wanted}` stays within its lookback")
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
            _raise_if_looking_back(rows)
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
        if any("UDTF" in one["class"] for one in node.expressions) and inner[-1].kind == "sliced":
            raise Unfollowed("Runnel can't look into its table function")
        if node.kind in GROUPED and any(one.kind == "sliced" for one in inner):
            return self._grouped(node, inner)
        return self._passed(node, self._linked(node, _filtered(node, inner[-1])))

    def _passed(self, node: Node, rows: Rows) -> Rows:
        """Return the rows of an operator with one child, from those of the child."""
        if rows.kind != "sliced":
            return rows
        if node.kind == "Window":
            rows = sliced_by((self._after_window(node, self.only(rows, node)),))
        elif node.kind in _GATHERING or node.kind == "Distinct":
            self._require(node, self.only(rows, node))
        elif node.kind not in ROWWISE and node.kind != "Sample":
            name = NAMES.get(node.kind, node.kind)
            raise Unfollowed(f"Runnel can't look into its `{name}`")
        if node.kind == "Expand" and node.fields.get("projections"):
            return sliced_by(tuple(_expanded(node, group) for group in rows.groups))
        if node.kind in (*_MADE, "Expand"):
            names = list(_names(node.fields.get(_MADE.get(node.kind, "")) or ()))
            return sliced_by(tuple(renamed(group, names, self.outputs[node]) for group in rows.groups))
        return rows

    def _grouped(self, node: Node, inner: Sequence[Rows]) -> Rows:
        """Return the rows that a function of the user's makes of each group of rows; its columns keep their names.

        Columns by which the rows are grouped are taken to be passed on where the function returns one of their name.
        """
        found = []
        for child, rows, field in zip(node.children, inner, GROUPED[node.kind], strict=True):
            if rows.kind == "universal":
                continue  # its rows are there for every group
            grouping = node.fields[field]
            if isinstance(grouping, int):
                grouping = child.fields["projectList"][:grouping]
            if lacking(group := self.only(rows, node), texts(grouping)):
                raise Unfollowed(f"its `{NAMES[node.kind]}` is not grouped by {listed(self._task.options.by)}")
            found.append(_passed_on(group, grouping, node))
        return sliced_by(merged(tuple(found)))

    def _after_window(self, node: Node, group: Group) -> Group:
        """Return the key of rows after a window; refuse one that reads more slices than the row's own."""
        if not lacking(group, texts(node.fields["partitionSpec"])):
            return group
        if not group.spare:
            self._require(node, group)
        order = [parse(item) for item in node.fields["orderSpec"]]
        top = order[0] if len(order) == 1 else None
        is_by_key = top is not None and _ordering(node, top.children[0]) in group.keys[0]
        is_ascending = top is not None and "Ascending" in str(top.item.get("direction"))
        is_plain = is_by_key or not node.fields["partitionSpec"]  # else it may be parted by a later day
        width = 0
        for frame in frames(node.fields["windowExpressions"]):
            if frame is not None and is_plain and (frame.first is None or frame.last is None):
                raise too_far_back(self._task, None, group.spare)
            if frame is None or not (frame.is_range and is_by_key and is_ascending):
                raise Unfollowed("Runnel can't see that its window stays within its lookback")
            if frame.last is None or frame.last > 0:
                raise too_far_back(self._task, None, group.spare)
            width = max(width, -(frame.first or 0))
        if width > group.spare:
            raise too_far_back(self._task, width, group.spare)
        return replace(group, spare=group.spare - width)

    def _require(self, node: Node, key: Group) -> None:
        """Refuse an operator that brings rows of several slices together."""
        field = _GATHERING.get(node.kind)
        given = texts(node.fields[field]) if field else []
        if node.kind == "Distinct":
            ids = self.outputs[node]
            if ids is None:
                raise Unfollowed("Runnel can't see which columns its distinct compares")
            given = [column(one) for one in ids]
        places = lacking(key, given)
        if places and key.spare:
            what = "subquery" if node in self._inside else NAMES[node.kind]
            raise Unfollowed(f"Runnel can't see that its {what} stays within its lookback")
        if places:
            kind = "Expand" if node.kind == "Aggregate" and node.children[0].kind == "Expand" else node.kind
            raise unaligned(self._task, kind, places, is_inside=node in self._inside)

    def _joined(self, node: Node) -> Rows:
        sides = [*node.children, *(node.subqueries if node.kind == "LateralJoin" else ())][:2]
        left, right = (self.rows[side] for side in sides)
        if node.kind == "LateralJoin":
            inwards = (tuple(frozenset(map(inward, one)) for one in group.keys) for group in right.groups)
            right = Rows(right.kind, tuple(map(Group, inwards, (group.spare for group in right.groups))))
        ids = [self.outputs[side] for side in sides]
        kind = str((node.fields.get("joinType") or {}).get("object")).rpartition(".")[2].rstrip("$")
        condition = condition_of(parse(node.fields.get("condition")))
        found = joined(kind, left, right, condition, [one or () for one in ids])
        if found is None:
            _raise_if_looking_back(left, right)
            raise unaligned(self._task, node.kind, is_inside=node in self._inside)
        return found

    def _stacked(self, node: Node, inner: Sequence[Rows]) -> Rows:
        """Return the rows of several children with the same columns by place."""
        kinds = {one.kind for one in inner}
        ids = [self.outputs[child] for child in node.children]
        if "sliced" not in kinds:
            return UNIVERSAL
        if None in ids:
            raise Unfollowed(f"Runnel can't see the columns of its {NAMES.get(node.kind, 'union')}")
        keys = [
            placed(self.only(one, node), own or ()) for one, own in zip(inner, ids, strict=True) if one.kind == "sliced"
        ]
        found = at(common(keys, is_whole=kinds == {"sliced"}), ids[0] or ())
        places = [place for place, known in enumerate(found.keys) if not known]
        if places:
            _raise_if_looking_back(*inner)
        if places and node.kind != "Union":
            raise unaligned(self._task, node.kind, places, is_inside=node in self._inside)
        return sliced_by((found,))

    def _referred(self, node: Node) -> Rows:
        """Return the rows of a CTE under the ids of the one that refers to it."""
        definition = self._defined.get(node.fields["cteId"])
        ids = self.outputs[definition] if definition else None
        if definition is None or ids is None:
            raise Unfollowed("Runnel can't see what one of its common table expressions is")
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
            for group in found.groups:
                pairs = list(zip(compared.get(id(item), ()), self.outputs[query] or (), strict=False))
                outer = tuple(_outside(known, pairs) for known in group.keys)
                if rows.kind == "universal" and all(outer):
                    rows = sliced_by((Group(outer, group.spare),))
                if not any(all(one & two for one, two in zip(own.keys, outer, strict=True)) for own in rows.groups):
                    _raise_if_looking_back(found)
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
    return sliced_by(merged(rows.groups, condition_of(parse(node.fields["condition"]))))


def _ordering(node: Node, expression: Expression) -> str | None:
    """Return what a window is ordered by: a day where it is the number of one. Spark puts expressions below it."""
    below = node.children[0].fields.get("projectList") or () if node.children[0].kind == "Project" else ()
    for item in below:
        made = parse(item)
        if made is not None and made.kind == "Alias" and column(number(dict(made.item))) == expression.value_text:
            expression = made.children[0]
    return day_of(expression).value_text


def _raise_if_looking_back(*sides: Rows) -> None:
    """Raise where rows of several slices meet, as a lookback allows, though the plan does not show how far apart."""
    if any(group.spare for rows in sides for group in rows.groups):
        raise Unfollowed("Runnel can't see that its rows stay within its lookback")


def _passed_on(group: Group, grouping: Sequence[Any], node: Node) -> Group:
    """Return a key in terms of the columns that a function returns for each group, known by their names."""
    own = {name.lower(): id_ for id_, name in node.attributes}
    tops = [top for item in grouping if (top := first(item))]
    names = [(column(number(top)), own.get(str(top.get("name")).lower())) for top in tops]
    renamings = [Renaming(text, text, column(id_)) for text, id_ in names if id_ is not None]
    return renamed(group, renamings, list(own.values()))


def _names(items: Sequence[Any]) -> Iterator[Renaming]:
    """Yield which expression each column of a projection stands for."""
    for item in items:
        top = first(item)
        if top and top["class"].endswith(".Alias"):
            exact, value = exact_text_of(item), text_of(item)
            if exact is not None and value is not None:
                yield Renaming(exact, value, column(number(top)))


def _expanded(node: Node, group: Group) -> Group:
    """Return the key of rows that are each made several times, with other columns: what it is in all of them."""
    ids = [one for one, _ in node.attributes]
    found = []
    for projection in node.fields["projections"]:
        made = [
            Renaming(exact, text_of(item) or exact, f"@{place}@")
            for place, item in enumerate(projection)
            if (exact := exact_text_of(item)) is not None
        ]
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
            found[id(query.item)] = [value.value_text for value in values]
    return found


def _outside(known: frozenset[str], pairs: Sequence[tuple[str | None, int]]) -> frozenset[str]:
    """Return what a key of a subquery is outside of it: what it is compared with."""
    compared = {value for value, one in pairs if value is not None and column(one) in known}
    return frozenset({inward(text) for text in known if not columns(text)} | compared)
