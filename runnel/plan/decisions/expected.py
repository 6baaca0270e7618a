"""Predict the step of a task while some of its inputs are still to be computed.

Pure. The run decides again once the inputs exist.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runnel.model.task_result import TaskResult
from runnel.names import TableName
from runnel.plan import reasons
from runnel.plan.decisions.base_result import (
    choose_nearest_inputs,
    explain_unusable_base,
    find_changed_inputs,
    iter_detached_results,
)
from runnel.plan.decisions.task import TaskCase, total_input_size
from runnel.plan.facts import Facts, SourceChanges
from runnel.plan.slices import SliceSelection, full_computation_reason, is_reference, slice_expressions
from runnel.plan.steps import PlanStep


@dataclass(frozen=True)
class PendingTable:
    """A table whose next version does not exist yet: the step that creates it, and the changes if it is a source."""

    step: PlanStep
    source_changes: SourceChanges | None = None

    @property
    def reason(self) -> str:
        """Return what happens to the table, as a reason for the tasks that read it."""
        if self.source_changes is None:
            return f"{self.step.table} {'may be' if self.step.analyse else 'is'} computed"
        has_arrivals = self.source_changes.new or self.source_changes.changed
        description = reasons.describe_source_changes(self.source_changes) or self.step.reason
        return f"{self.step.table}{' gets' if has_arrivals else ':'} {description}"

    @property
    def only_adds_rows(self) -> bool:
        """Return whether the step most likely removes no existing row."""
        if self.source_changes is not None:
            return not (self.source_changes.changed or self.source_changes.removed)
        return self.step.action == "rows"


def expect_task(case: TaskCase, pending: Mapping[TableName, PendingTable], facts: Facts) -> PlanStep:
    """Return the expected step of a task; `case` has the inputs that exist, `pending` the others."""
    table = case.task.table
    head = facts.head(table)
    base = facts.latest_result(table, head) if head is not None and not case.forced_reason else None
    reason, start_note = case.forced_reason or explain_unusable_base(case, head, base), ""
    if (
        reason is not None
        and not case.forced_reason
        and (detached_result := next(iter_detached_results(case, facts), None)) is not None
    ):
        base, reason, start_note = detached_result, None, f"; {reasons.describe_start(detached_result, case.branch)}"
    if reason is not None or base is None:
        return _expected_full_step(case, pending, facts, reason or reasons.NOT_YET)
    base = choose_nearest_inputs(case, base, facts)
    changed = find_changed_inputs(case, base)
    change_reasons = [
        reasons.describe_change(upstream, facts.change_size(upstream, base.inputs[upstream], case.inputs[upstream]))
        for upstream in changed
    ]
    change_reason = reasons.join_reasons([*(upstream.reason for upstream in pending.values()), *change_reasons])
    if full_reason := full_computation_reason(case.task, base.full_reason):
        return _expected_full_step(case, pending, facts, f"{change_reason}; {full_reason}")
    if case.task.options.by and not _affects_all_slices(case, base, pending, changed, facts):
        return PlanStep(
            table,
            "slices",
            f"{change_reason}; its slices are found first{start_note}",
            base=base,
            changed=(*pending, *changed),
            is_expected=True,
            slices=SliceSelection(None, base.slices),
        )
    if changed or not _can_update_rows(case, pending):
        return _expected_full_step(case, pending, facts, change_reason)
    return PlanStep(table, "rows", change_reason + start_note, base=base, changed=tuple(pending), is_expected=True)


def _can_update_rows(case: TaskCase, pending: Mapping[TableName, PendingTable]) -> bool:
    options = case.task.options
    if not options.rowwise or any(upstream.step.action == "full" for upstream in pending.values()):
        return False
    return bool(options.key) or all(upstream.only_adds_rows for upstream in pending.values())


def _affects_all_slices(
    case: TaskCase,
    base: TaskResult,
    pending: Mapping[TableName, PendingTable],
    changed: Sequence[TableName],
    facts: Facts,
) -> bool:
    """Return whether all slices are likely affected: an input without slices changes, or one is computed in full."""
    task = case.task
    for table in (*pending, *changed):
        if is_reference(task, table):
            continue
        is_computed_in_full = (
            table in pending and pending[table].step.action == "full" and not pending[table].step.analyse
        )
        if is_computed_in_full or slice_expressions(task, table, facts.columns(table, base.inputs[table])) is None:
            return True
    return False


def _expected_full_step(
    case: TaskCase, pending: Mapping[TableName, PendingTable], facts: Facts, reason: str
) -> PlanStep:
    """Return an expected full computation, with the size of the current inputs."""
    pending_versions = [(table, facts.head(table)) for table in pending]
    rows, size = total_input_size([*case.inputs.items(), *pending_versions], facts)
    return PlanStep(case.task.table, "full", reason, rows=rows, bytes=size, is_expected=True)
