"""Differences of two versions, and merges, as JSON."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel.lake.diff.lake_diff import LakeDiff, TableDiff
    from runnel.lake.merge.merge_plan import MergeDecision


def diff_json(diff: "LakeDiff") -> dict[str, Any]:
    """Return how two versions of the lake differ."""
    return {
        "before": diff.before.id,
        "after": diff.after.id,
        "tables": [_table_diff_json(table_diff) for table_diff in diff.tables],
    }


def steps_json(steps: "Iterable[MergeDecision]") -> list[dict[str, Any]]:
    """Return what a merge does to each table that it changes."""
    return [
        {"table": str(step.table), "action": step.action, "reason": step.reason}
        for step in steps
        if step.action != "same"
    ]


def _table_diff_json(table_diff: "TableDiff") -> dict[str, Any]:
    return {
        "table": str(table_diff.table),
        "change": table_diff.change,
        "rows_added": table_diff.rows_added,
        "rows_removed": table_diff.rows_removed,
        "schema": list(table_diff.schema),
        "reason": table_diff.reason,
    }
