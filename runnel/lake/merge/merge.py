"""Merge a branch into another as one commit, or report the conflicts.

The commit merges the state of the source branch when the merge was planned. If the target branch moves meanwhile, even
in a table that the commit does not change, the merge is planned again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.errors import Conflict, join_names
from runnel.lake import failpoints
from runnel.lake.history.commits import Commit, CommitChange, LakeState, read_sequence
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.merge.merge_plan import MergeDecision, MergePlan, plan_merge
from runnel.lake.publish import CommitDraft, publish, retry_on_conflict
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class MergeResult:
    """The result of a merge; `commit` is None if there was nothing to merge."""

    commit: Commit | None
    plan: MergePlan


class MergeConflict(Conflict):
    """Both branches changed some tables in ways that can't be combined."""

    def __init__(self, source: str, into: str, tables: Sequence[MergeDecision]) -> None:
        reasons = "; ".join(f"`{step.table}`: {step.reason}" for step in tables[:5])
        more = f"; and {len(tables) - 5} more" if len(tables) > 5 else ""
        super().__init__(
            "MERGE_CONFLICT",
            f"branch `{source}` can't be merged into `{into}`: {reasons}{more}",
            fix=f"revert the change on one of the branches (`runnel log TABLE` shows it), then repeat; "
            f"`runnel diff {into} {source}` shows both",
        )
        self.tables = tuple(tables)


class NeedsRun(Conflict):
    """Tables that tasks make changed on both branches: no conflict, but they must be computed again."""

    def __init__(self, source: str, into: str, tables: Sequence[MergeDecision]) -> None:
        super().__init__(
            "MERGE_NEEDS_RUN",
            f"{join_names([str(step.table) for step in tables])} must be "
            f"computed again to merge `{source}` into `{into}`",
            fix=f"runnel merge {source} --into {into} --run",
        )
        self.tables = tuple(tables)


PublishMerge = Callable[[tuple[CommitChange, ...], tuple[str, str] | None, str], Commit]
"""Publishes a merge with what was computed for it: the changes, the slot that they were written in, and the run."""
ComputeMerge = Callable[[MergePlan, LakeState, int, PublishMerge], Commit]
"""Computes the tables that a merge needs, from the state that the target will otherwise have, and publishes it.

The number is the lake's sequence when the merge was planned."""


def merge_branch(
    store: "Store", source: str, into: str = "main", message: str | None = None, compute: ComputeMerge | None = None
) -> MergeResult:
    """Merge the branch `source` into the branch `into`.

    Raises MergeConflict or NeedsRun with the tables that prevent the merge; then nothing has changed. With `compute`,
    tables that tasks make are computed again, in the same commit.
    """
    staged: dict[tuple[object, ...], str] = {}
    with acquire_pin(store.db, "write") as pin:

        def merge_once() -> MergeResult:
            planned_sequence = store.db.read(read_sequence)
            plan = plan_merge(store, source, into)
            # If both sides reached the same content independently, a commit without changes records that: if the
            # target is rewound later, the next merge starts from this commit and does not bring the change back.
            if not any(step.changes_table or step.is_agreed or step.action == "conflict" for step in plan.steps):
                return MergeResult(None, plan)
            _raise_for_conflicts(plan, source, computes=compute is not None)
            with acquire_pin(store.db, "read", plan.source.id):
                draft = replace(
                    _build_draft(store, plan, message or f"merge {source}", pin, staged),
                    planned_sequence=planned_sequence,
                )
                failpoints.reach(failpoints.MERGE_STAGED)
                if compute is None or not plan.with_action("compute"):
                    return MergeResult(publish(store.db, draft), plan)
                expected_state = _expected_state(store, plan, draft)
                publisher = _create_publisher(store, draft)
                return MergeResult(compute(plan, expected_state, planned_sequence, publisher), plan)

        return retry_on_conflict(merge_once)


def _expected_state(store: "Store", plan: MergePlan, draft: CommitDraft) -> LakeState:
    """Return the state of the target after the merge; tables that are still to be computed are at their old version."""
    state = dict(store.state(plan.target))
    for change in draft.changes:
        if change.after is None:
            state.pop(change.table, None)
        else:
            state[change.table] = TableVersion(change.after, change.content or change.after)
    return state


def _create_publisher(store: "Store", draft: CommitDraft) -> PublishMerge:
    def publish_computed(computed: tuple[CommitChange, ...], slot: tuple[str, str] | None, run: str) -> Commit:
        changes_by_table = {change.table: change for change in draft.changes}
        unmoved = dict(draft.required_versions)
        for change in computed:
            # A table that the merge itself changed starts from the target's version, not from the computed input.
            before = changes_by_table[change.table].before if change.table in changes_by_table else change.before
            changes_by_table[change.table] = replace(
                change, before=before, detail={**change.detail, "merged": draft.merged}
            )
            unmoved.pop(change.table, None)
        changes = tuple(changes_by_table[table] for table in sorted(changes_by_table))
        return publish(
            store.db, replace(draft, changes=changes, required_versions=tuple(unmoved.items()), slot=slot, run=run)
        )

    return publish_computed


def _raise_for_conflicts(plan: MergePlan, source: str, *, computes: bool = False) -> None:
    if conflicts := plan.with_action("conflict"):
        raise MergeConflict(source, plan.into, conflicts)
    if not computes and (needed := plan.with_action("compute")):
        raise NeedsRun(source, plan.into, needed)


def _build_draft(
    store: "Store", plan: MergePlan, message: str, pin: str, staged: dict[tuple[object, ...], str]
) -> CommitDraft:
    detail = {"merged": plan.source.id}
    changes = tuple(
        _build_change(store, step, detail, staged)
        for step in plan.steps
        if step.changes_table and step.action != "compute"
    )
    unchanged_steps = [step for step in plan.steps if not step.changes_table or step.action == "compute"]
    relied_on = tuple((step.table, step.ours.location if step.ours else None) for step in unchanged_steps)
    return CommitDraft(
        plan.into,
        message,
        store.author,
        changes,
        kind="merge",
        merged=plan.source.id,
        required_versions=relied_on,
        processed_files=tuple(
            (step.table, processed_file)
            for step in plan.steps
            if step.changes_table
            for processed_file in step.processed_files
        ),
        pin=pin,
    )


def _build_change(
    store: "Store", step: MergeDecision, detail: dict[str, str], staged: dict[tuple[object, ...], str]
) -> CommitChange:
    before = step.ours.location if step.ours else None
    change_detail = {**detail, "action": step.action}
    if step.replay is None:
        after = step.theirs.location if step.theirs else None
        return CommitChange(step.table, before, after, step.theirs.content if step.theirs else None, change_detail)
    if step.replay.result not in staged:  # the same for every attempt to publish
        staged[step.replay.result] = step.replay.stage(store)
        failpoints.reach(failpoints.MERGE_REPLAYED)
    return CommitChange(step.table, before, staged[step.replay.result], step.content, change_detail)
