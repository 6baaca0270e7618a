"""Merge a branch into another, as one commit, or report what stands against it.

The commit takes in what the branch held when the merge was planned. When the target moves meanwhile, it is planned
again; so is a decision about a table that the commit leaves as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.errors import Conflict, Moved, listed
from runnel.lake import failpoints
from runnel.lake.commits import Change, Commit
from runnel.lake.merge_plan import Decision, MergePlan, plan_merge
from runnel.lake.pins import pinned
from runnel.lake.publish import Draft, publish, sequence

if TYPE_CHECKING:
    from runnel.lake.store import Store

__all__ = ["Decision", "MergeConflict", "MergePlan", "Merged", "NeedsRun", "merge", "plan_merge"]

_ATTEMPTS = 50


@dataclass(frozen=True)
class Merged:
    """A merge that was carried out; `commit` is None where there was nothing to merge."""

    commit: Commit | None
    plan: MergePlan


class MergeConflict(Conflict):
    """Tables that both branches changed in ways that don't combine."""

    def __init__(self, source: str, into: str, tables: Sequence[Decision]) -> None:
        told = "; ".join(f"`{step.table}`: {step.reason}" for step in tables[:5])
        more = f"; and {len(tables) - 5} more" if len(tables) > 5 else ""
        super().__init__(
            "MERGE_CONFLICT",
            f"branch `{source}` can't be merged into `{into}`: {told}{more}",
            fix=f"revert the change on one of the branches (`runnel log TABLE` shows it), then repeat; "
            f"`runnel diff {into} {source}` shows both",
        )
        self.tables = tuple(tables)


class NeedsRun(Conflict):
    """Tables that tasks make and that moved on both branches: not a conflict but work."""

    def __init__(self, source: str, into: str, tables: Sequence[Decision]) -> None:
        super().__init__(
            "MERGE_NEEDS_RUN",
            f"{listed([str(step.table) for step in tables])} must be computed again to merge `{source}` into `{into}`",
            fix=f"runnel merge {source} --into {into} --run",
        )
        self.tables = tuple(tables)


def merge(store: "Store", source: str, into: str = "main", message: str | None = None) -> Merged:
    """Merge the branch `source` into the branch `into`.

    Raises MergeConflict or NeedsRun, naming the tables that stand against it; then nothing has changed.
    """
    staged: dict[tuple[object, ...], str] = {}
    with pinned(store.db, "write") as pin:
        for attempt in range(1, _ATTEMPTS + 1):
            planned = store.db.read(sequence)
            plan = plan_merge(store, source, into)
            if not any(step.changes or step.action == "conflict" for step in plan.steps):
                return Merged(None, plan)
            _refuse(plan, source)
            with pinned(store.db, "read", plan.source.id):
                draft = replace(_draft(store, plan, message or f"merge {source}", pin, staged), planned=planned)
                failpoints.reach(failpoints.MERGE_STAGED)
                try:
                    return Merged(publish(store.db, draft), plan)
                except Moved:
                    if attempt == _ATTEMPTS:
                        raise
    raise AssertionError("unreachable")


def _refuse(plan: MergePlan, source: str) -> None:
    if conflicts := plan.having("conflict"):
        raise MergeConflict(source, plan.into, conflicts)
    if work := plan.having("compute"):
        raise NeedsRun(source, plan.into, work)


def _draft(store: "Store", plan: MergePlan, message: str, pin: str, staged: dict[tuple[object, ...], str]) -> Draft:
    detail = {"merged": plan.source.id}
    changes = tuple(_change(store, step, detail, staged) for step in plan.steps if step.changes)
    relied_on = tuple((s.table, s.ours.location if s.ours else None) for s in plan.steps if not s.changes)
    return Draft(
        plan.into,
        message,
        store.author,
        changes,
        kind="merge",
        merged=plan.source.id,
        unmoved=relied_on,
        pin=pin,
    )


def _change(store: "Store", step: Decision, detail: dict[str, str], staged: dict[tuple[object, ...], str]) -> Change:
    before = step.ours.location if step.ours else None
    told = {**detail, "action": step.action}
    if step.replay is None:
        after = step.theirs.location if step.theirs else None
        return Change(step.table, before, after, step.theirs.content if step.theirs else None, told)
    if step.replay.result not in staged:  # the same for every attempt to publish
        staged[step.replay.result] = step.replay.stage(store)
        failpoints.reach(failpoints.MERGE_REPLAYED)
    return Change(step.table, before, staged[step.replay.result], None, told)
