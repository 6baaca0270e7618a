"""Merge branches of a lake behind a service."""

from typing import TYPE_CHECKING

from runnel.client.remote.json_values import commit_of
from runnel.lake.merge.merge import Decision, Merged, MergePlan
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.remote.connection import Connection
    from runnel.lake.history.commits import Commit


def merge(connection: "Connection", branch: str, into: str) -> Merged:
    """Merge a branch into another; raise MergeConflict or NeedsRun where tables stand against it."""
    done = connection.post("/merge", {"branch": branch, "into": into})

    def commit(name: str) -> "Commit":
        return commit_of(connection.get(f"/commits/{name}"))

    steps = tuple(Decision(TableName.stored(one["table"]), one["action"], one["reason"] or "") for one in done["steps"])
    bases = tuple(commit(name) for name in done["bases"])
    plan = MergePlan(into, commit(done["target"]), commit(done["source"]), bases, steps)
    return Merged(commit(done["commit"]) if done["commit"] else None, plan)
