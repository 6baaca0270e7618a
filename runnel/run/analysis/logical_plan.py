"""Build a tree of nodes from the JSON of Spark's analysed plan. Pure.

Spark lists a tree in preorder, each element with its number of children; a subquery expression contains a whole plan.
Nothing here recurses, because plans of generated code are deep.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class PlanNode:
    """An operator of a plan. `kind` is its class without the package."""

    kind: str
    fields: dict[str, Any]
    alias: str | None = None  # of the SubqueryAlias right above it: `catalog.layer.name` of a table
    children: list["PlanNode"] = field(default_factory=list)
    subqueries: list["PlanNode"] = field(default_factory=list)
    expressions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def attributes(self) -> list[tuple[int, str]]:
        """Return (id, name) of the output columns of a leaf."""
        outermost = [get_outermost(item) for item in self.fields.get("output") or ()]
        return [(get_expression_id(item), str(item["name"])) for item in outermost if item]


def build_tree(items: Sequence[dict[str, Any]]) -> list[PlanNode]:
    """Return all nodes of a plan, the root first and every parent before its children, subqueries included."""
    nodes: list[PlanNode] = []
    pending_plans: list[Sequence[dict[str, Any]]] = [items]
    owners: list[PlanNode | None] = [None]
    while pending_plans:
        tree_nodes, plans = _build_single_tree(pending_plans.pop())
        owner = owners.pop()
        if owner is not None and tree_nodes:
            owner.subqueries.append(tree_nodes[0])
        nodes.extend(tree_nodes)
        for holder, plan in plans:
            pending_plans.append(plan)
            owners.append(holder)
    return nodes


def find_references(expressions: Sequence[dict[str, Any]]) -> set[int]:
    """Return the ids of the columns that flat expressions mention."""
    return {get_expression_id(item) for item in expressions if item["class"].endswith(".AttributeReference")}


def flatten_expressions(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every expression in a field of a node, without those of plans inside."""
    pending = [value]
    while pending:
        element = pending.pop()
        if isinstance(element, list):
            pending.extend(reversed(element))
        elif isinstance(element, dict):
            if "num-children" in element:  # else it is a type or the metadata of a column
                yield element
            pending.extend(
                field_value
                for key, field_value in element.items()
                if key != "plan" and isinstance(field_value, list | dict)
            )


def get_outermost(item: Any) -> dict[str, Any] | None:
    """Return the outermost expression of a flat list; None if there is none."""
    return item[0] if isinstance(item, list) and item and isinstance(item[0], dict) else None


def get_expression_id(item: dict[str, Any]) -> int:
    """Return the id of a named expression, or -1 if it has none."""
    return int((item.get("exprId") or {}).get("id", -1))


def _build_single_tree(
    items: Sequence[dict[str, Any]],
) -> tuple[list[PlanNode], list[tuple[PlanNode, Sequence[dict[str, Any]]]]]:
    nodes: list[PlanNode] = []
    plans: list[tuple[PlanNode, Sequence[dict[str, Any]]]] = []
    open_parents: list[tuple[PlanNode, int]] = []  # a parent, and how many children it still lacks
    for item in items:
        kind = item["class"].rpartition(".")[2].rstrip("$")
        node = PlanNode(
            kind,
            item,
            expressions=[
                expression
                for key, field_value in item.items()
                if key != "class"
                for expression in flatten_expressions(field_value)
            ],
        )
        plans.extend(
            (node, expression["plan"]) for expression in node.expressions if isinstance(expression.get("plan"), list)
        )
        if open_parents:
            parent, missing_children = open_parents.pop()
            parent.children.append(node)
            node.alias = _read_table_alias(parent)
            if missing_children > 1:
                open_parents.append((parent, missing_children - 1))
        nodes.append(node)
        if item["num-children"]:
            open_parents.append((node, item["num-children"]))
    return nodes, plans


def _read_table_alias(node: PlanNode) -> str | None:
    """Return the qualified name of a catalog table; None for a user's own alias, which has no qualifier."""
    identifier = node.fields.get("identifier") if node.kind == "SubqueryAlias" else None
    qualifier = (identifier or {}).get("qualifier") or "[]"
    parts = qualifier.strip("[]").split(", ") if isinstance(qualifier, str) else qualifier
    return ".".join([*parts, identifier["name"]]) if identifier and any(parts) else None
