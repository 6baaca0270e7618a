"""Merge a branch into another, as one commit, or report what stands against it.

The commit takes in what the branch held when the merge was planned. When the target moves meanwhile, it is planned
again; so is a decision about a table that the commit leaves as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.errors import Conflict, Moved, listed
from runnel.lake import failpoints
from runnel.lake.history.commits import Change, Commit, State, Version, sequence
from runnel.lake.leases.pins import pinned
from runnel.lake.merge.merge_plan import Decision, MergePlan, plan_merge
from runnel.lake.publish import Draft, publish

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


Finish = Callable[[tuple[Change, ...], tuple[str, str] | None, str], Commit]
"""Publishes a merge with what was computed for it: the changes, the slot that they were made in, and the run."""
Compute = Callable[[MergePlan, State, int, Finish], Commit]
"""Computes what a merge needs, given the state that the target will have but for that, and finishes it.

The number is the lake's sequence when the merge was planned."""


def merge(
    store: "Store", source: str, into: str = "main", message: str | None = None, compute: Compute | None = None
) -> Merged:
    """Merge the branch `source` into the branch `into`.

    Raises MergeConflict or NeedsRun, naming the tables that stand against it; then nothing has changed. With
    `compute`, tables that tasks make are computed into the same commit.
    """
    staged: dict[tuple[object, ...], str] = {}
    with pinned(store.db, "write") as pin:
        for attempt in range(1, _ATTEMPTS + 1):
            planned = store.db.read(sequence)
            plan = plan_merge(store, source, into)
            # Where both sides came to the same by themselves, a commit without changes says that they agree: if the
            # target is set back later, the next merge starts from here and does not bring the change back.
            if not any(step.changes or step.is_agreed or step.action == "conflict" for step in plan.steps):
                return Merged(None, plan)
            _refuse(plan, source, computes=compute is not None)
            with pinned(store.db, "read", plan.source.id):
                draft = replace(_draft(store, plan, message or f"merge {source}", pin, staged), planned=planned)
                failpoints.reach(failpoints.MERGE_STAGED)
                try:
                    if compute is not None and plan.having("compute"):
                        return Merged(compute(plan, _state(store, plan, draft), planned, _finish(store, draft)), plan)
                    return Merged(publish(store.db, draft), plan)
                except Moved:
                    if attempt == _ATTEMPTS:
                        raise
    raise AssertionError("unreachable")


def _state(store: "Store", plan: MergePlan, draft: Draft) -> State:
    """Return what the target will hold, but for what is to be computed: that is as it is."""
    state = dict(store.state(plan.target))
    for change in draft.changes:
        if change.after is None:
            state.pop(change.table, None)
        else:
            state[change.table] = Version(change.after, change.content or change.after)
    return state


def _finish(store: "Store", draft: Draft) -> Finish:
    def finish(computed: tuple[Change, ...], slot: tuple[str, str] | None, run: str) -> Commit:
        made = {change.table: change for change in draft.changes}
        relied = dict(draft.unmoved)
        for change in computed:
            # What the merge itself changed starts from where the target is, not from what was computed on.
            before = made[change.table].before if change.table in made else change.before
            made[change.table] = replace(change, before=before, detail={**change.detail, "merged": draft.merged})
            relied.pop(change.table, None)
        changes = tuple(made[table] for table in sorted(made))
        return publish(store.db, replace(draft, changes=changes, unmoved=tuple(relied.items()), slot=slot, run=run))

    return finish


def _refuse(plan: MergePlan, source: str, *, computes: bool = False) -> None:
    if conflicts := plan.having("conflict"):
        raise MergeConflict(source, plan.into, conflicts)
    if not computes and (work := plan.having("compute")):
        raise NeedsRun(source, plan.into, work)


def _draft(store: "Store", plan: MergePlan, message: str, pin: str, staged: dict[tuple[object, ...], str]) -> Draft:
    detail = {"merged": plan.source.id}
    changes = tuple(
        _change(store, step, detail, staged) for step in plan.steps if step.changes and step.action != "compute"
    )
    left = [step for step in plan.steps if not step.changes or step.action == "compute"]
    relied_on = tuple((step.table, step.ours.location if step.ours else None) for step in left)
    return Draft(
        plan.into,
        message,
        store.author,
        changes,
        kind="merge",
        merged=plan.source.id,
        unmoved=relied_on,
        seen=tuple((step.table, one) for step in plan.steps if step.changes for one in step.seen),
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
    return Change(step.table, before, staged[step.replay.result], step.content, told)
