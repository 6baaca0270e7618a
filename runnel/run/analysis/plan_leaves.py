"""Read what the leaves of a plan scan if the plan's JSON does not say it: files, databases, RDDs, unnamed tables.

Makes a few calls of Spark per leaf, so it is only used for plans that have such leaves.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILE_RDD = re.compile(r"^[\s|()\d+-]*(\S.*?)? (?:New)?HadoopRDD\[", re.MULTILINE)
_HIDING = ("DataSourceRDD", "FileScanRDD", "CheckpointRDD", "SQLExecutionRDD", "JDBCRDD")
_MOST = 3


@dataclass(frozen=True)
class PlanLeaf:
    """What a leaf reads: a catalog `table`, something `outside`, rows whose origin an RDD `hides`, or only literals."""

    table: str | None = None
    outside: str | None = None
    hides: bool = False


def read_leaves(frame: "DataFrame") -> dict[int, PlanLeaf]:
    """Return what each leaf of the analysed plan reads, by the id of its first column."""
    plan = frame._jdf.queryExecution().analyzed()
    leaves_by_id: dict[int, PlanLeaf] = {}
    for subplan in [plan, *_to_list(plan.subqueriesAll())]:
        for leaf in _to_list(subplan.collectLeaves()):
            output = leaf.output()
            if not output.isEmpty():
                leaves_by_id[output.head().exprId().id()] = _read_leaf(leaf)
    return leaves_by_id


def _read_leaf(leaf: Any) -> PlanLeaf:
    kind = leaf.getClass().getSimpleName()
    if kind == "DataSourceV2Relation":
        if leaf.identifier().isDefined() and leaf.catalog().isDefined():
            return PlanLeaf(table=leaf.name())
        return PlanLeaf(outside=str(leaf.table().name()))
    if kind == "LogicalRelation":
        return PlanLeaf(outside=_describe_relation(leaf.relation()))
    if kind == "LogicalRDD":
        return _classify_rdd(leaf.rdd().toDebugString())
    return PlanLeaf(outside=str(leaf.simpleString(_MOST)))


def _describe_relation(relation: Any) -> str:
    if relation.getClass().getSimpleName() == "HadoopFsRelation":
        paths = [path.toString() for path in _to_list(relation.location().rootPaths())]
        more = f" and {len(paths) - _MOST} more" if len(paths) > _MOST else ""
        return ", ".join(path.removeprefix("file:") for path in paths[:_MOST]) + more
    text = str(relation.toString())
    database = re.match(r"JDBCRelation\((.*)\) \[", text)
    return f"JDBC table {database[1]}" if database else text


def _classify_rdd(lineage: str) -> PlanLeaf:
    """Return, from the lineage of an RDD, whether it holds literal rows, reads files, or hides its origin."""
    files = _FILE_RDD.search(lineage)
    if files:
        return PlanLeaf(outside=files[1] or "files of an RDD")
    return PlanLeaf(hides=any(sign in lineage for sign in _HIDING))


def _to_list(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
