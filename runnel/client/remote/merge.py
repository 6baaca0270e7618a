"""Merge branches of a lake behind a service."""

from typing import TYPE_CHECKING

from runnel.client.remote.json_values import parse_commit
from runnel.lake.merge.merge import MergeResult
from runnel.lake.merge.merge_plan import MergeDecision, MergePlan
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection
    from runnel.lake.history.commits import Commit


def merge(connection: "ServiceConnection", branch: str, into: str) -> MergeResult:
    """Merge a branch into another; raise MergeConflict or NeedsRun if tables prevent it."""
    body = connection.post("/merge", {"branch": branch, "into": into})

    def get_commit(name: str) -> "Commit":
        return parse_commit(connection.get(f"/commits/{name}"))

    steps = tuple(
        MergeDecision(TableName.parse_unchecked(step["table"]), step["action"], step["reason"] or "")
        for step in body["steps"]
    )
    bases = tuple(get_commit(name) for name in body["bases"])
    plan = MergePlan(into, get_commit(body["target"]), get_commit(body["source"]), bases, steps)
    return MergeResult(get_commit(body["commit"]) if body["commit"] else None, plan)
