"""Spark's analysed plan as a tree of nodes, made of the JSON that Spark writes for it. Pure.

Spark lists a tree in preorder, each element with its number of children; expressions hold whole plans where they are
subqueries. Nothing here recurses, because plans of generated code are deep.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Node:
    """An operator of a plan. `kind` is its class without the package."""

    kind: str
    fields: dict[str, Any]
    alias: str | None = None  # of the SubqueryAlias right above it: `catalog.layer.name` of a table
    children: list["Node"] = field(default_factory=list)
    subqueries: list["Node"] = field(default_factory=list)
    expressions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def attributes(self) -> list[tuple[int, str]]:
        """Return (id, name) of the columns that a leaf brings."""
        found = [first(item) for item in self.fields.get("output") or ()]
        return [(number(item), str(item["name"])) for item in found if item]


def tree(items: Sequence[dict[str, Any]]) -> list[Node]:
    """Return all nodes of a plan, the root first and every parent before its children, subqueries included."""
    nodes: list[Node] = []
    waiting: list[Sequence[dict[str, Any]]] = [items]
    owners: list[Node | None] = [None]
    while waiting:
        found, plans = _one_tree(waiting.pop())
        owner = owners.pop()
        if owner is not None and found:
            owner.subqueries.append(found[0])
        nodes.extend(found)
        for holder, plan in plans:
            waiting.append(plan)
            owners.append(holder)
    return nodes


def references(expressions: Sequence[dict[str, Any]]) -> set[int]:
    """Return the ids of the columns that flat expressions mention."""
    return {number(item) for item in expressions if item["class"].endswith(".AttributeReference")}


def flat(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every expression in a field of a node, but nothing of the plans inside."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo.extend(reversed(one))
        elif isinstance(one, dict):
            if "num-children" in one:  # else it is a type or the metadata of a column
                yield one
            todo.extend(part for key, part in one.items() if key != "plan" and isinstance(part, list | dict))


def first(item: Any) -> dict[str, Any] | None:
    """Return the outermost expression of a flat one."""
    return item[0] if isinstance(item, list) and item and isinstance(item[0], dict) else None


def number(item: dict[str, Any]) -> int:
    """Return the id of a named expression, or -1 where it has none."""
    return int((item.get("exprId") or {}).get("id", -1))


def _one_tree(
    items: Sequence[dict[str, Any]],
) -> tuple[list[Node], list[tuple[Node, Sequence[dict[str, Any]]]]]:
    nodes: list[Node] = []
    plans: list[tuple[Node, Sequence[dict[str, Any]]]] = []
    open_: list[tuple[Node, int]] = []  # a parent, and how many children it still lacks
    for item in items:
        kind = item["class"].rpartition(".")[2].rstrip("$")
        node = Node(kind, item, expressions=[one for key, part in item.items() if key != "class" for one in flat(part)])
        plans.extend((node, one["plan"]) for one in node.expressions if isinstance(one.get("plan"), list))
        if open_:
            parent, lacking = open_.pop()
            parent.children.append(node)
            node.alias = _alias(parent)
            if lacking > 1:
                open_.append((parent, lacking - 1))
        nodes.append(node)
        if item["num-children"]:
            open_.append((node, item["num-children"]))
    return nodes, plans


def _alias(node: Node) -> str | None:
    """Return the whole name of a catalog's table; an alias of the user's own has no qualifier."""
    identifier = node.fields.get("identifier") if node.kind == "SubqueryAlias" else None
    qualifier = (identifier or {}).get("qualifier") or "[]"
    parts = qualifier.strip("[]").split(", ") if isinstance(qualifier, str) else qualifier
    return ".".join([*parts, identifier["name"]]) if identifier and any(parts) else None
