"""Which columns of its tables a plan uses, from its root down: a column that is only passed by is not used. Pure."""

from collections.abc import Sequence

from runnel.run.analysis.logical_plan import Node, first, flat, number, references

# Operators that need the columns above them and those in their own expressions, and pass on their children's. Not
# Expand: Spark's JSON leaves its expressions out, as it does with every list of lists.
_PASSING = frozenset(
    (
        "SubqueryAlias",
        "View",
        "Filter",
        "Sort",
        "Generate",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "ResolvedHint",
        "Join",
        "LateralJoin",
        "AsOfJoin",
        "Window",
        "GlobalLimit",
        "LocalLimit",
        "Offset",
        "Tail",
        "Sample",
        "Deduplicate",
        "WithCTE",
        "CollectMetrics",
        "EventTimeWatermark",
        "PipeOperator",
        "MapInPandas",
        "MapInArrow",
        "FlatMapGroupsInPandas",
        "FlatMapGroupsInArrow",
    )
)
_PRUNING = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
_MAKING = {"Generate": "generatorOutput", "Window": "windowExpressions"}
Ids = list[int] | None  # None: it can't be said, so everything counts


def used(nodes: Sequence[Node]) -> dict[Node, set[int]]:
    """Return for each leaf of a plan, the root of which comes first, the ids of the columns that are used."""
    if not nodes:
        return {}
    outputs = outputs_of(nodes)
    found: dict[Node, set[int]] = {}
    asked: dict[int, set[int]] = {}  # of each CTE: positions
    todo: list[tuple[Node, set[int] | None]] = [(nodes[0], _all(outputs[nodes[0]]))]
    while todo:
        node, need = todo.pop()
        if node.kind == "CTERelationRef":
            own = [one for one, _ in node.attributes]
            places = {place for place, one in enumerate(own) if need is None or one in need}
            asked.setdefault(node.fields["cteId"], set()).update(places)
        elif not node.children:
            every = {one for one, _ in node.attributes}
            found.setdefault(node, set()).update(every if need is None else every & need)
        todo.extend((child, _needed(node, child, need, outputs, asked)) for child in node.children)
        todo.extend((query, _all(outputs[query])) for query in node.subqueries)
    return found


def _needed(
    node: Node, child: Node, need: set[int] | None, outputs: dict[Node, Ids], asked: dict[int, set[int]]
) -> set[int] | None:
    """Return the ids that a node needs of one of its children."""
    inner, outer = outputs[child], outputs[node]
    if node.kind in _PRUNING:
        return _pruned(node, need)
    if node.kind == "CTERelationDef":
        places = asked.get(node.fields["id"], set())
        return None if inner is None else {one for place, one in enumerate(inner) if place in places}
    if node.kind == "WithCTE":
        return need if child is node.children[-1] else set()
    if node.kind == "Union" and inner is not None and outer is not None and need is not None:
        return {one for one, above in zip(inner, outer, strict=False) if above in need}
    if node.kind in _PASSING and need is not None:
        return need | references(node.expressions) | _outer(node)
    return _all(inner)


def _pruned(node: Node, need: set[int] | None) -> set[int]:
    """Return what those columns of a projection need that are needed themselves."""
    kept = _PRUNING[node.kind]
    wanted = references([one for key, part in node.fields.items() if key != kept for one in flat(part)])
    for item in node.fields[kept]:
        top = first(item)
        if need is None or top is None or number(top) in need:
            wanted |= references(list(flat(item)))
    return wanted | _outer(node)


def _outer(node: Node) -> set[int]:
    """Return what the subqueries in a node mention: it may be a column outside of them."""
    found: set[int] = set()
    todo = list(node.subqueries)
    while todo:
        one = todo.pop()
        if one.children:
            found |= references(one.expressions)
        todo += one.children + one.subqueries
    return found


def outputs_of(nodes: Sequence[Node]) -> dict[Node, Ids]:
    """Return the ids of the columns that each node gives to the one above it; None where it can't be said."""
    found: dict[Node, Ids] = {}
    for node in reversed(nodes):
        inner = [found[child] for child in node.children]
        if not node.children:
            found[node] = [one for one, _ in node.attributes]
        elif node.kind in _PRUNING:
            found[node] = [number(top) for item in node.fields[_PRUNING[node.kind]] if (top := first(item))]
        elif node.kind in ("Join", "LateralJoin", "AsOfJoin"):
            found[node] = _joined(node, inner)
        elif "output" in node.fields:
            found[node] = [one for one, _ in node.attributes]
        elif node.kind in _MAKING:
            made = [number(top) for item in node.fields[_MAKING[node.kind]] if (top := first(item))]
            found[node] = None if inner[0] is None else inner[0] + made
        elif node.kind == "WithCTE":
            found[node] = inner[-1]
        else:
            is_known = node.kind in _PASSING or node.kind in (
                "Union",
                "Distinct",
                "Intersect",
                "Except",
                "CTERelationDef",
            )
            found[node] = inner[0] if is_known else None
    return found


def _joined(node: Node, inner: Sequence[Ids]) -> Ids:
    kind = str(node.fields.get("joinType"))
    sides = inner[:1] if "LeftSemi" in kind or "LeftAnti" in kind else inner
    if node.kind == "LateralJoin" or "Existence" in kind or any(side is None for side in sides):
        return None
    return [one for side in sides if side is not None for one in side]


def _all(ids: Ids) -> set[int] | None:
    return None if ids is None else set(ids)
