"""Publish the results of the steps of a run as one commit."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from runnel.declare.model.flow import quarantine_table_of
from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.publish import CommitDraft, publish
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    from runnel.names import TableName
    from runnel.run.results.run_result import StepResult
    from runnel.run.run_context import RunContext


def list_changes(run_context: "RunContext", steps: "Iterable[StepResult]") -> tuple[CommitChange, ...]:
    """Return how tables and quarantine tables differ from the state in which the run started."""
    changes: list[CommitChange | None] = []
    for step in steps:
        if step.state == "succeeded":
            changes += [
                _find_table_change(run_context, step.table, step.head, step.detail),
                _find_quarantine_change(run_context, step),
            ]
    return tuple(sorted((change for change in changes if change is not None), key=lambda change: change.table))


def _find_quarantine_change(run_context: "RunContext", step: "StepResult") -> CommitChange | None:
    """Return how a quarantine table differs; a reused result without one removes the table's own."""
    table, detail = quarantine_table_of(step.table), {"of": str(step.table)}
    previous = run_context.spec.state.get(table)
    if (
        step.quarantine is None
        and step.action == "reuse"
        and step.table in run_context.flow.tasks
        and previous is not None
    ):
        return CommitChange(table, previous.location, None, None, detail)
    return _find_table_change(run_context, table, step.quarantine, detail)


def _find_table_change(
    run_context: "RunContext", table: "TableName", head: TableVersion | None, detail: Mapping[str, object]
) -> CommitChange | None:
    previous = run_context.spec.state.get(table)
    if head is None or (
        previous is not None and (previous.location, previous.content) == (head.location, head.content)
    ):
        return None
    return CommitChange(table, previous.location if previous else None, head.location, head.content, detail)


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
