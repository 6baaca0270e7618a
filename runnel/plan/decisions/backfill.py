"""Decide the step of a task in a backfill: slices of requested days are computed even if nothing changed. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.model.date_range import DateRange, DateSlices
from runnel.model.slice_key import union_keys
from runnel.plan import reasons
from runnel.plan.date_range import RequestedDays
from runnel.plan.slices import SliceSelection, is_most_slices

if TYPE_CHECKING:
    from runnel.model.table_version import TableVersion
    from runnel.model.task_result import TaskResult
    from runnel.names import TableName
    from runnel.plan.decisions.expected import PendingTable
    from runnel.plan.decisions.task import TaskCase
    from runnel.plan.facts import Facts
    from runnel.plan.steps import PlanStep


def find_date_slices(case: "TaskCase", head: "TableVersion", facts: "Facts") -> DateSlices | None:
    """Return the slices of the requested days, or None if the task has no slices by date."""
    by = case.task.options.by
    return facts.date_slices(case.task.table, head, by, case.days) if by and case.days is not None else None


def describe_full_backfill(days: DateRange) -> str:
    """Return the reason why a backfill computes a task in full."""
    return f"{reasons.describe_backfill(days)}; it has no slices by date"


def add_requested_days(
    usual_step: "PlanStep",
    days: DateRange,
    base: "TaskResult",
    date_slices: DateSlices,
    input_size: tuple[int | None, int | None],
) -> "PlanStep | str":
    """Return a step by slices with the requested ones, or why all is computed; `usual_step` is the step without days.

    `input_size` are the rows and bytes of all inputs.
    """
    changed = usual_step.slices.keys if usual_step.slices is not None else () if not usual_step.changed else None
    keys = None if changed is None or date_slices.keys is None else union_keys([changed, date_slices.keys])
    count = len(keys) if keys is not None else date_slices.count
    reason = _describe_slices(usual_step, days, count, base.slices)
    if count is not None and is_most_slices(count, base.slices):
        return f"{reason}: that is most of them"
    share = min(1.0, count / base.slices) if count is not None and base.slices else None
    rows, size = (int(amount * share) if amount is not None and share is not None else None for amount in input_size)
    return replace(
        usual_step,
        action="slices",
        reason=reason,
        head=None,
        existing_result=None,
        base=base,
        slices=SliceSelection(keys, base.slices),
        rows=rows,
        bytes=size,
        requested_days=RequestedDays(days, date_slices.column),
    )


def expect_backfill(
    case: "TaskCase", usual_step: "PlanStep", pending: "Mapping[TableName, PendingTable]", facts: "Facts"
) -> "PlanStep":
    """Return the expected step of a task with inputs still to be computed; `usual_step` is the step without days.

    An input that is computed only because the request selects it most likely stays as it is.
    """
    from runnel.plan.decisions.base_result import explain_unusable_base
    from runnel.plan.decisions.task import total_input_size

    table, days = case.task.table, case.days
    head = facts.head(table)
    base = facts.latest_result(table, head) if head is not None else None
    if days is None or head is None or base is None or explain_unusable_base(case, head, base) is not None:
        return usual_step
    date_slices = find_date_slices(case, head, facts)
    if date_slices is None:
        return _expect_unsliced(usual_step, head, days, pending)
    if any(upstream.step.action == "full" and upstream.step.requested_days is None for upstream in pending.values()):
        return usual_step
    pending_versions = [(above, facts.head(above)) for above in pending]
    input_size = total_input_size([*case.inputs.items(), *pending_versions], facts)
    unchanged_step = replace(usual_step, changed=(), slices=None)
    step = add_requested_days(unchanged_step, days, base, date_slices, input_size)
    if isinstance(step, str):
        return replace(
            usual_step,
            action="full",
            reason=step,
            slices=None,
            rows=input_size[0],
            bytes=input_size[1],
            requested_days=RequestedDays(days),
        )
    return replace(step, key=None, is_expected=True)


def _expect_unsliced(
    usual_step: "PlanStep", head: "TableVersion", days: DateRange, pending: "Mapping[TableName, PendingTable]"
) -> "PlanStep":
    if days.is_start:
        return replace(
            usual_step,
            action="full",
            reason=describe_full_backfill(days),
            slices=None,
            requested_days=RequestedDays(days),
        )
    if all(upstream.step.requested_days is not None for upstream in pending.values()):
        reason = "computed in full with the first chunk; again only if its inputs change"
        return replace(usual_step, action="skip", reason=reason, head=head, slices=None, rows=None, bytes=None)
    return usual_step


def _describe_slices(usual_step: "PlanStep", days: DateRange, count: int | None, total: int | None) -> str:
    count_text = f"{count:,} of {max(count, total):,}, " if count is not None and total is not None else ""
    change_text = f"; {usual_step.reason}" if usual_step.changed else ""
    return f"{count_text}{reasons.describe_backfill(days)}{change_text}"
