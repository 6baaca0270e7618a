"""Differences of two versions, and merges, as JSON."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel.lake.diff.lake_diff import Diff, TableDiff
    from runnel.lake.merge.merge_plan import Decision


def diff_json(found: "Diff") -> dict[str, Any]:
    """Return how two versions of the lake differ."""
    return {"before": found.before.id, "after": found.after.id, "tables": [_table(one) for one in found.tables]}


def steps_json(steps: "Iterable[Decision]") -> list[dict[str, Any]]:
    """Return what a merge does to each table that it does anything to."""
    return [
        {"table": str(step.table), "action": step.action, "reason": step.reason}
        for step in steps
        if step.action != "same"
    ]


def _table(one: "TableDiff") -> dict[str, Any]:
    return {
        "table": str(one.table),
        "change": one.change,
        "rows_added": one.rows_added,
        "rows_removed": one.rows_removed,
        "schema": list(one.schema),
        "reason": one.reason,
    }
