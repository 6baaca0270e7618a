"""Publish the results of the steps of a run as one commit."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from runnel.declare.model.flow import quarantine_table_of
from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.publish import CommitDraft, publish
from runnel.run.table_changes import TableUpdate, table_changes

if TYPE_CHECKING:
    from runnel.run.results.run_result import StepResult
    from runnel.run.run_context import RunContext


def list_changes(run_context: "RunContext", steps: "Iterable[StepResult]") -> tuple[CommitChange, ...]:
    """Return how tables and quarantine tables differ from the state in which the run started."""
    updates = [update for step in steps if step.state == "succeeded" for update in _list_updates(run_context, step)]
    return table_changes(run_context.spec.state, sorted(updates, key=lambda update: update.table))


def _list_updates(run_context: "RunContext", step: "StepResult") -> Iterator[TableUpdate]:
    """Yield the new versions of a step; a reused result without a quarantine table removes the existing one."""
    if step.head is not None:
        yield TableUpdate(step.table, step.head, step.detail)
    if step.quarantine is not None or (step.action == "reuse" and step.table in run_context.flow.tasks):
        yield TableUpdate(quarantine_table_of(step.table), step.quarantine, {"of": str(step.table)})


def publish_run(
    run_context: "RunContext", steps: "tuple[StepResult, ...]", message: str | None = None
) -> Commit | None:
    """Publish a run as one commit; return None if nothing changed."""
    changes = list_changes(run_context, steps)
    succeeded_steps = [step for step in steps if step.state == "succeeded"]
    seen = tuple((step.table, seen) for step in succeeded_steps for seen in step.processed_files)
    if not changes and not seen:
        return None
    draft = CommitDraft(
        run_context.spec.branch,
        message or build_message(succeeded_steps),
        run_context.store.author,
        changes,
        kind="run",
        run=run_context.spec.run,
        planned_sequence=run_context.spec.planned_sequence,
        pin=run_context.spec.pin,
        slot=run_context.slot_lease.slot.lease if run_context.slot_lease else None,
        processed_files=seen,
        claim=run_context.spec.claim,
    )
    return publish(run_context.store.db, draft)


def build_message(steps: "Iterable[StepResult]") -> str:
    """Return the default message of a commit."""
    names = [str(step.table) for step in steps]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"run {', '.join(names[:3])}{more}"
