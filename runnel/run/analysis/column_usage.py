"""Find which columns of its tables a plan uses; a column that is read but never needed above is not used. Pure."""

from collections.abc import Sequence

from runnel.run.analysis.logical_plan import (
    PlanNode,
    find_references,
    flatten_expressions,
    get_expression_id,
    get_outermost,
)

# Operators that need the columns needed above them and those in their own expressions, and output their children's
# columns. Not Expand: Spark's JSON leaves out its expressions, as it does with every list of lists.
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
_NEW_COLUMN_FIELDS = {"Generate": "generatorOutput", "Window": "windowExpressions"}
ColumnIds = list[int] | None  # None: unknown, so all columns count as used


def find_used_columns(nodes: Sequence[PlanNode]) -> dict[PlanNode, set[int]]:
    """Return the ids of the used columns for each leaf of a plan; `nodes` has the root first."""
    if not nodes:
        return {}
    outputs = find_output_ids(nodes)
    used_ids: dict[PlanNode, set[int]] = {}
    cte_positions: dict[int, set[int]] = {}  # used column positions of each CTE
    pending: list[tuple[PlanNode, set[int] | None]] = [(nodes[0], _to_set(outputs[nodes[0]]))]
    while pending:
        node, needed_ids = pending.pop()
        if node.kind == "CTERelationRef":
            cte_ids = [column_id for column_id, _ in node.attributes]
            positions = {
                position for position, column_id in enumerate(cte_ids) if needed_ids is None or column_id in needed_ids
            }
            cte_positions.setdefault(node.fields["cteId"], set()).update(positions)
        elif not node.children:
            leaf_ids = {column_id for column_id, _ in node.attributes}
            used_ids.setdefault(node, set()).update(leaf_ids if needed_ids is None else leaf_ids & needed_ids)
        pending.extend(
            (child, _find_needed_ids(node, child, needed_ids, outputs, cte_positions)) for child in node.children
        )
        pending.extend((query, _to_set(outputs[query])) for query in node.subqueries)
    return used_ids


def _find_needed_ids(
    node: PlanNode,
    child: PlanNode,
    needed_ids: set[int] | None,
    outputs: dict[PlanNode, ColumnIds],
    cte_positions: dict[int, set[int]],
) -> set[int] | None:
    """Return the ids that a node needs of one of its children."""
    child_ids, output_ids = outputs[child], outputs[node]
    if node.kind in _PRUNING:
        return _find_projected_ids(node, needed_ids)
    if node.kind == "CTERelationDef":
        positions = cte_positions.get(node.fields["id"], set())
        return (
            None
            if child_ids is None
            else {column_id for position, column_id in enumerate(child_ids) if position in positions}
        )
    if node.kind == "WithCTE":
        return needed_ids if child is node.children[-1] else set()
    if node.kind == "Union" and child_ids is not None and output_ids is not None and needed_ids is not None:
        return {
            column_id for column_id, output_id in zip(child_ids, output_ids, strict=False) if output_id in needed_ids
        }
    if node.kind in _PASSING and needed_ids is not None:
        return needed_ids | find_references(node.expressions) | _find_outer_references(node)
    return _to_set(child_ids)


def _find_projected_ids(node: PlanNode, needed_ids: set[int] | None) -> set[int]:
    """Return the ids that the needed columns of a projection refer to."""
    pruned_field = _PRUNING[node.kind]
    referenced_ids = find_references(
        [
            expression
            for key, field_value in node.fields.items()
            if key != pruned_field
            for expression in flatten_expressions(field_value)
        ]
    )
    for item in node.fields[pruned_field]:
        top = get_outermost(item)
        if needed_ids is None or top is None or get_expression_id(top) in needed_ids:
            referenced_ids |= find_references(list(flatten_expressions(item)))
    return referenced_ids | _find_outer_references(node)


def _find_outer_references(node: PlanNode) -> set[int]:
    """Return the ids that the subqueries of a node refer to, which may be columns outside of them."""
    outer_ids: set[int] = set()
    pending = list(node.subqueries)
    while pending:
        inner_node = pending.pop()
        if inner_node.children:
            outer_ids |= find_references(inner_node.expressions)
        pending += inner_node.children + inner_node.subqueries
    return outer_ids


def find_output_ids(nodes: Sequence[PlanNode]) -> dict[PlanNode, ColumnIds]:
    """Return the ids of the output columns of each node; None if they are unknown."""
    output_ids: dict[PlanNode, ColumnIds] = {}
    for node in reversed(nodes):
        child_ids = [output_ids[child] for child in node.children]
        if not node.children:
            output_ids[node] = [column_id for column_id, _ in node.attributes]
        elif node.kind in _PRUNING:
            output_ids[node] = [
                get_expression_id(top) for item in node.fields[_PRUNING[node.kind]] if (top := get_outermost(item))
            ]
        elif node.kind in ("Join", "LateralJoin", "AsOfJoin"):
            output_ids[node] = _join_output_ids(node, child_ids)
        elif "output" in node.fields:
            output_ids[node] = [column_id for column_id, _ in node.attributes]
        elif node.kind in _NEW_COLUMN_FIELDS:
            new_ids = [
                get_expression_id(top)
                for item in node.fields[_NEW_COLUMN_FIELDS[node.kind]]
                if (top := get_outermost(item))
            ]
            output_ids[node] = None if child_ids[0] is None else child_ids[0] + new_ids
        elif node.kind == "WithCTE":
            output_ids[node] = child_ids[-1]
        else:
            is_known = node.kind in _PASSING or node.kind in (
                "Union",
                "Distinct",
                "Intersect",
                "Except",
                "CTERelationDef",
            )
            output_ids[node] = child_ids[0] if is_known else None
    return output_ids


def _join_output_ids(node: PlanNode, child_ids: Sequence[ColumnIds]) -> ColumnIds:
    kind = str(node.fields.get("joinType"))
    sides = child_ids[:1] if "LeftSemi" in kind or "LeftAnti" in kind else child_ids
    if node.kind == "LateralJoin" or "Existence" in kind or any(side is None for side in sides):
        return None
    return [column_id for side in sides if side is not None for column_id in side]


def _to_set(ids: ColumnIds) -> set[int] | None:
    return None if ids is None else set(ids)
