"""What the leaves of a plan read, where the plan's JSON does not say it: files, databases, RDDs, unnamed tables.

Asks Spark a few questions per leaf, so it is only used for plans that have such leaves.
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
class Leaf:
    """What one leaf reads: a `table` of a catalog, something `outside`, rows that an RDD `hides`, or mere literals."""

    table: str | None = None
    outside: str | None = None
    hides: bool = False


def leaves(frame: "DataFrame") -> dict[int, Leaf]:
    """Return what each leaf of the analysed plan reads, by the id of its first column."""
    plan = frame._jdf.queryExecution().analyzed()
    found: dict[int, Leaf] = {}
    for one in [plan, *_items(plan.subqueriesAll())]:
        for leaf in _items(one.collectLeaves()):
            output = leaf.output()
            if not output.isEmpty():
                found[output.head().exprId().id()] = _leaf(leaf)
    return found


def _leaf(leaf: Any) -> Leaf:
    kind = leaf.getClass().getSimpleName()
    if kind == "DataSourceV2Relation":
        if leaf.identifier().isDefined() and leaf.catalog().isDefined():
            return Leaf(table=leaf.name())
        return Leaf(outside=str(leaf.table().name()))
    if kind == "LogicalRelation":
        return Leaf(outside=_relation(leaf.relation()))
    if kind == "LogicalRDD":
        return _rdd(leaf.rdd().toDebugString())
    return Leaf(outside=str(leaf.simpleString(_MOST)))


def _relation(relation: Any) -> str:
    if relation.getClass().getSimpleName() == "HadoopFsRelation":
        paths = [path.toString() for path in _items(relation.location().rootPaths())]
        more = f" and {len(paths) - _MOST} more" if len(paths) > _MOST else ""
        return ", ".join(path.removeprefix("file:") for path in paths[:_MOST]) + more
    text = str(relation.toString())
    database = re.match(r"JDBCRelation\((.*)\) \[", text)
    return f"JDBC table {database[1]}" if database else text


def _rdd(lineage: str) -> Leaf:
    """Tell literal rows from what an RDD reads, by the RDDs that it is made from."""
    files = _FILE_RDD.search(lineage)
    if files:
        return Leaf(outside=files[1] or "files of an RDD")
    return Leaf(hides=any(sign in lineage for sign in _HIDING))


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]
