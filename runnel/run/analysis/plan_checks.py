"""Read the analysed plan of a frame before anything runs: what it reads, and what its task must not do.

One call of Spark gives the plan as JSON. Columns, functions and operators are read off that.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Task
from runnel.errors import Mistake, join_names
from runnel.names import SLOT_PREFIX, TableName
from runnel.run.analysis.column_usage import find_used_columns
from runnel.run.analysis.logical_plan import PlanNode, build_tree
from runnel.run.analysis.operators import (
    CLOCK_FUNCTIONS,
    CTE_REFERENCES,
    LITERAL,
    NAMES,
    NONDETERMINISTIC,
    ROWWISE,
    STORAGE,
)
from runnel.run.analysis.plan_leaves import PlanLeaf, read_leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class PlanAnalysis:
    """What a plan reads and does, in the names that users know.

    `columns` has the used columns of each input; an input that the plan does not show is missing. `hidden` says that
    rows come through an RDD or a checkpoint, so that the plan does not show which tables they are from.
    """

    undeclared: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    nondeterministic: tuple[str, ...] = ()
    blocks_rowwise: tuple[str, ...] = ()
    columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    hidden: bool = False


def analyse_plan(frame: "DataFrame", tables_by_identifier: Mapping[str, TableName]) -> PlanAnalysis:
    """Return what the plan of a frame reads and does.

    `tables_by_identifier` has the declared inputs by their identifiers in the slot.
    """
    nodes = build_tree(json.loads(frame._jdf.queryExecution().analyzed().toJSON()))
    leaves_by_node = _read_leaves_by_node(frame, nodes)
    tables = {node: leaf.table for node, leaf in leaves_by_node.items() if leaf.table}
    slots = {SLOT_PREFIX, *(name.partition(".")[0] + "." for name in tables_by_identifier)}
    undeclared_names = [name for name in tables.values() if name not in tables_by_identifier]
    slot_tables = [name for name in undeclared_names if name.startswith(tuple(slots)) and name.count(".") == 2]
    time_travelled = [f"{name.partition('.')[2]} at another version" for name in _find_time_travel(tables)]
    outside = [leaf.outside for leaf in leaves_by_node.values() if leaf.outside]
    columns, storage = _split_used_columns(nodes, tables, tables_by_identifier)
    hidden = any(leaf.hides for leaf in leaves_by_node.values())
    return PlanAnalysis(
        undeclared=_deduplicate(name.partition(".")[2] for name in slot_tables),
        outside=_deduplicate(
            [*outside, *(name for name in undeclared_names if name not in slot_tables), *time_travelled]
        ),
        nondeterministic=_deduplicate([*_find_nondeterministic_functions(nodes), *storage]),
        blocks_rowwise=_deduplicate(_find_rowwise_blockers(nodes, leaves_by_node)),
        columns=columns,
        hidden=hidden,
    )


def check_analysis(task: Task, analysis: PlanAnalysis) -> tuple[str, ...]:
    """Raise if the task does what it has not declared; return warnings about everything else."""
    at, task_label = str(task.place), f"task `{task.table}`"
    if analysis.undeclared:
        declared = {str(table): parameter for parameter, table in task.inputs}
        names = [declared[name] for name in analysis.undeclared if name in declared]
        fix = f"read it through the parameter {join_names(names)}" if names else "add it as a parameter, or to inputs="
        what = f"{task_label} reads {join_names(analysis.undeclared)}, which it does not declare as an input"
        raise Mistake("RUN_UNDECLARED_INPUT", what, at=at, fix=fix)
    if analysis.outside and not task.options.volatile:
        what = f"{task_label} reads {join_names(analysis.outside)}, outside of its inputs, where Runnel sees no changes"
        fix = "bring it into the lake with rn.source, or write volatile=True: then the task is never skipped"
        raise Mistake("RUN_OUTSIDE_READ", what, at=at, fix=fix)
    if task.options.rowwise and analysis.blocks_rowwise:
        what = (
            f"{task_label} is rowwise, but not each of its rows comes from "
            f"one input row: {join_names(analysis.blocks_rowwise)}"
        )
        raise Mistake("RUN_NOT_ROWWISE", what, at=at, fix="remove rowwise=True, or the operations that prevent it")
    if task.options.volatile:
        return ()
    nondeterminism_warning = [
        f"uses {join_names(analysis.nondeterministic)}, which may differ each time it is computed; "
        f"{_suggest_fixed_value(task, analysis.nondeterministic)}"
    ]
    hidden_warning = ["goes through an RDD or a checkpoint, where Runnel can't see what is read"]
    return (
        *(nondeterminism_warning if analysis.nondeterministic else ()),
        *(hidden_warning if analysis.hidden else ()),
    )


def _suggest_fixed_value(task: Task, functions: Sequence[str]) -> str:
    """Return what to write instead of functions whose value differs each time."""
    is_clock = any(name in CLOCK_FUNCTIONS for name in functions)
    if task.sql is not None and is_clock:
        return (
            'pass the value in (`params = { today = "2026-01-31" }` in its options, `:today` in the SQL, '
            "`runnel run --set today=...`), or write volatile = true: then the task is never skipped"
        )
    if is_clock:
        return (
            "pass the value in as a keyword parameter (`*, today: date`, `runnel run --set today=...`), or take it "
            "from the keyword parameter `scheduled_at`, the time of the run's schedule; "
            "if it shall change by itself, write volatile=True: then the task is never skipped"
        )
    if task.sql is not None:
        return "write volatile = true in its options: then the task is never skipped"
    return "pass the value in as a parameter, or write volatile=True: then the task is never skipped"


def uses_same_columns(
    columns_before: Mapping[TableName, Sequence[str]],
    analysis: PlanAnalysis,
    columns_added: Mapping[TableName, Collection[str]],
) -> bool:
    """Return whether a task uses the same columns as before, and none of those that its inputs gained.

    An input that the plan does not show may have been read while the frame was built, so it counts as used.
    """
    if analysis.hidden or analysis.outside:
        return False
    for table, gained_columns in columns_added.items():
        if table not in columns_before or table not in analysis.columns:
            return False
        columns_now = set(analysis.columns[table])
        if columns_now & set(gained_columns) or columns_now != set(columns_before[table]):
            return False
    return True


def _read_leaves_by_node(frame: "DataFrame", nodes: Sequence[PlanNode]) -> dict[PlanNode, PlanLeaf]:
    """Return what each leaf reads; ask Spark again only if the plan does not say it."""
    leaf_nodes = [node for node in nodes if not node.children and node.kind not in CTE_REFERENCES]
    leaves_by_node = {node: PlanLeaf() for node in leaf_nodes if node.kind in LITERAL}
    leaves_by_node |= {
        node: PlanLeaf(table=node.alias) for node in leaf_nodes if node.kind == "DataSourceV2Relation" and node.alias
    }
    stream_names = {node: node.fields.get("sourceName") for node in leaf_nodes}
    leaves_by_node |= {node: PlanLeaf(outside=f"the stream {name}") for node, name in stream_names.items() if name}
    unknown_nodes = [node for node in leaf_nodes if node not in leaves_by_node]
    leaves_by_column_id = read_leaves(frame) if unknown_nodes else {}
    for node in unknown_nodes:
        column_id = node.attributes[0][0] if node.attributes else -1
        leaves_by_node[node] = leaves_by_column_id.get(column_id, PlanLeaf(outside=node.kind))
    return leaves_by_node


def _split_used_columns(
    nodes: Sequence[PlanNode], tables: Mapping[PlanNode, str], tables_by_identifier: Mapping[str, TableName]
) -> tuple[dict[TableName, tuple[str, ...]], list[str]]:
    """Return the used columns of each declared input, and the used metadata columns about where a row is stored."""
    columns_by_table: dict[TableName, dict[str, None]] = {}
    storage: list[str] = []
    for node, ids in find_used_columns(nodes).items():
        table = tables_by_identifier.get(tables.get(node, ""))
        names = [name for column_id, name in node.attributes if column_id in ids]
        if node in tables:
            storage += [name for name in names if name in STORAGE]
        if table is not None:
            columns_by_table.setdefault(table, {}).update(dict.fromkeys(name for name in names if name not in STORAGE))
    return {table: tuple(names) for table, names in columns_by_table.items()}, storage


def _find_nondeterministic_functions(nodes: Sequence[PlanNode]) -> list[str]:
    """Return the names of the functions whose value does not depend on their arguments alone."""
    function_names = []
    for node in nodes:
        for item in node.expressions:
            kind = item["class"].rpartition(".")[2].rstrip("$")
            if kind in NONDETERMINISTIC:
                function_names.append(NONDETERMINISTIC[kind])
            elif item.get("udfDeterministic") is False:
                function_names.append(str(item.get("name")))
        if node.kind == "Sample":
            function_names.append("sample")
    return function_names


def _find_rowwise_blockers(nodes: Sequence[PlanNode], leaves_by_node: Mapping[PlanNode, PlanLeaf]) -> list[str]:
    blockers = []
    for node in nodes:
        if node.children and node.kind not in ROWWISE:
            blockers.append(NAMES.get(node.kind, node.kind))
        if node.subqueries and node.kind not in NAMES:
            blockers.append("subquery")
        if node.kind == "Generate" and any("UDTF" in item["class"] for item in node.expressions):
            blockers.append("table function")
        if node in leaves_by_node and not leaves_by_node[node].table:
            blockers.append("an RDD" if leaves_by_node[node].hides else "rows that come from no input")
    return blockers


def _find_time_travel(tables: Mapping[PlanNode, str]) -> list[str]:
    return [name for node, name in tables.items() if "timeTravelSpec" in node.fields]


def _deduplicate(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
