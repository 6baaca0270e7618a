"""Read the analysed plan of a frame before anything runs: what it reads, and what its task must not do.

One call of Spark gives the plan as JSON. Columns, functions and operators are read off that.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Task
from runnel.errors import Mistake, listed
from runnel.names import SLOT_PREFIX, TableName
from runnel.run.analysis.column_usage import used
from runnel.run.analysis.logical_plan import Node, tree
from runnel.run.analysis.operators import LITERAL, NAMES, NONDETERMINISTIC, ROWWISE, STORAGE
from runnel.run.analysis.plan_leaves import Leaf, leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Analysis:
    """What a plan reads and does, in names that people know.

    `columns` has those of each input that are used; an input that the plan does not show is not in it. `hidden` tells
    that rows come through an RDD or a checkpoint, where nobody sees which tables they are from.
    """

    undeclared: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    nondeterministic: tuple[str, ...] = ()
    blocks_rowwise: tuple[str, ...] = ()
    columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    hidden: bool = False


def analyse(frame: "DataFrame", known: Mapping[str, TableName]) -> Analysis:
    """Return what the frame's plan reads and does. `known` are the identifiers in the slot of the declared inputs."""
    nodes = tree(json.loads(frame._jdf.queryExecution().analyzed().toJSON()))
    read = _read(frame, nodes)
    tables = {node: leaf.table for node, leaf in read.items() if leaf.table}
    slots = {SLOT_PREFIX, *(name.partition(".")[0] + "." for name in known)}
    strange = [name for name in tables.values() if name not in known]
    ours = [name for name in strange if name.startswith(tuple(slots)) and name.count(".") == 2]
    travelled = [f"{name.partition('.')[2]} at another version" for name in _travelled(tables)]
    outside = [leaf.outside for leaf in read.values() if leaf.outside]
    columns, storage = _columns(nodes, tables, known)
    hidden = any(leaf.hides for leaf in read.values())
    return Analysis(
        undeclared=_once(name.partition(".")[2] for name in ours),
        outside=_once([*outside, *(name for name in strange if name not in ours), *travelled]),
        nondeterministic=_once([*_functions(nodes), *storage]),
        blocks_rowwise=_once(_blocking(nodes, read)),
        columns=columns,
        hidden=hidden,
    )


def judge(task: Task, analysis: Analysis) -> tuple[str, ...]:
    """Refuse what the task has not declared, and return warnings about the rest."""
    at, who = str(task.place), f"task `{task.table}`"
    if analysis.undeclared:
        declared = {str(table): parameter for parameter, table in task.inputs}
        names = [declared[name] for name in analysis.undeclared if name in declared]
        fix = f"read it through the parameter {listed(names)}" if names else "add it as a parameter, or to inputs="
        what = f"{who} reads {listed(analysis.undeclared)}, which it does not declare as an input"
        raise Mistake("RUN_UNDECLARED_INPUT", what, at=at, fix=fix)
    if analysis.outside and not task.options.volatile:
        what = f"{who} reads {listed(analysis.outside)}, outside of its inputs, where Runnel sees no changes"
        fix = "bring it into the lake with rn.source, or write volatile=True: then the task is never skipped"
        raise Mistake("RUN_OUTSIDE_READ", what, at=at, fix=fix)
    if task.options.rowwise and analysis.blocks_rowwise:
        what = f"{who} is rowwise, but not each of its rows comes from one input row: {listed(analysis.blocks_rowwise)}"
        raise Mistake("RUN_NOT_ROWWISE", what, at=at, fix="remove rowwise=True, or what stands against it")
    if task.options.volatile:
        return ()
    found = [f"uses {listed(analysis.nondeterministic)}, which may differ whenever it is computed"]
    hidden = ["goes through an RDD or a checkpoint, where Runnel can't see what is read"]
    return (*(found if analysis.nondeterministic else ()), *(hidden if analysis.hidden else ()))


def same_use(
    before: Mapping[TableName, Sequence[str]], analysis: Analysis, added: Mapping[TableName, Collection[str]]
) -> bool:
    """Tell whether a task uses none of the columns that its inputs gained, and else the same ones as before.

    An input that the plan does not show may have been read while the frame was built, so it counts as used.
    """
    if analysis.hidden or analysis.outside:
        return False
    for table, gained in added.items():
        if table not in before or table not in analysis.columns:
            return False
        now = set(analysis.columns[table])
        if now & set(gained) or now != set(before[table]):
            return False
    return True


def _read(frame: "DataFrame", nodes: Sequence[Node]) -> dict[Node, Leaf]:
    """Return what each leaf reads; Spark is asked again only where the plan does not say it."""
    ends = [node for node in nodes if not node.children and node.kind != "CTERelationRef"]
    found = {node: Leaf() for node in ends if node.kind in LITERAL}
    found |= {node: Leaf(table=node.alias) for node in ends if node.kind == "DataSourceV2Relation" and node.alias}
    named = {node: node.fields.get("sourceName") for node in ends}
    found |= {node: Leaf(outside=f"the stream {name}") for node, name in named.items() if name}
    unknown = [node for node in ends if node not in found]
    asked = leaves(frame) if unknown else {}
    for node in unknown:
        number = node.attributes[0][0] if node.attributes else -1
        found[node] = asked.get(number, Leaf(outside=node.kind))
    return found


def _columns(
    nodes: Sequence[Node], tables: Mapping[Node, str], known: Mapping[str, TableName]
) -> tuple[dict[TableName, tuple[str, ...]], list[str]]:
    """Return the columns used of each declared input, and those used that tell where a row is stored."""
    found: dict[TableName, dict[str, None]] = {}
    storage: list[str] = []
    for node, ids in used(nodes).items():
        table = known.get(tables.get(node, ""))
        names = [name for number, name in node.attributes if number in ids]
        if node in tables:
            storage += [name for name in names if name in STORAGE]
        if table is not None:
            found.setdefault(table, {}).update(dict.fromkeys(name for name in names if name not in STORAGE))
    return {table: tuple(names) for table, names in found.items()}, storage


def _functions(nodes: Sequence[Node]) -> list[str]:
    """Return the functions whose value is not given by their arguments."""
    found = []
    for node in nodes:
        for item in node.expressions:
            kind = item["class"].rpartition(".")[2].rstrip("$")
            if kind in NONDETERMINISTIC:
                found.append(NONDETERMINISTIC[kind])
            elif item.get("udfDeterministic") is False:
                found.append(str(item.get("name")))
        if node.kind == "Sample":
            found.append("sample")
    return found


def _blocking(nodes: Sequence[Node], read: Mapping[Node, Leaf]) -> list[str]:
    found = []
    for node in nodes:
        if node.children and node.kind not in ROWWISE:
            found.append(NAMES.get(node.kind, node.kind))
        if node.subqueries and node.kind not in NAMES:
            found.append("subquery")
        if node.kind == "Generate" and any("UDTF" in item["class"] for item in node.expressions):
            found.append("table function")
        if node in read and not read[node].table:
            found.append("an RDD" if read[node].hides else "rows that come from no input")
    return found


def _travelled(tables: Mapping[Node, str]) -> list[str]:
    return [name for node, name in tables.items() if "timeTravelSpec" in node.fields]


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
