"""Decide what to do for a task whose inputs all exist, and why; used by the planner and again during a run.

Pure: reads the facts, changes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from runnel.declare.model.flow import Task
from runnel.errors import plural
from runnel.model.change_size import ChangeSize
from runnel.model.date_range import DateRange
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.names import TableName
from runnel.plan import reasons
from runnel.plan.date_range import RequestedDays
from runnel.plan.decisions.backfill import add_requested_days, describe_full_backfill, find_date_slices
from runnel.plan.decisions.base_result import (
    choose_nearest_inputs,
    count_changed_rows,
    explain_unusable_base,
    find_changed_inputs,
    has_same_quarantine,
    iter_detached_results,
)
from runnel.plan.decisions.slices import plan_slices
from runnel.plan.facts import Facts
from runnel.plan.fingerprint.fingerprints import Fingerprint
from runnel.plan.missing_inputs import refuse_missing
from runnel.plan.result_key import compute_task_key
from runnel.plan.slices import full_computation_reason
from runnel.plan.steps import PlanStep

COPIES_SHARE = 0.2  # above this share of changed rows, rows without a key are not removed one by one


@dataclass(frozen=True)
class TaskCase:
    """A task with everything that its decision depends on, except the facts of the lake."""

    task: Task
    fingerprint: Fingerprint
    inputs: Mapping[TableName, TableVersion]
    branch: str | None = None
    full_refresh: bool = False
    days: DateRange | None = None

    @cached_property
    def key(self) -> str:
        """Return the key of the result; valid only if the case has all inputs."""
        return compute_task_key(self.task, self.fingerprint.digest, self.inputs)

    @property
    def forced_reason(self) -> str | None:
        """Return why the task is always computed, even if a result exists; else None."""
        if self.task.options.volatile:
            return reasons.VOLATILE
        return reasons.REFRESH if self.full_refresh else None


def decide_task(
    task: Task,
    fingerprint: Fingerprint,
    inputs: Mapping[TableName, TableVersion | None],
    facts: Facts,
    *,
    branch: str | None = None,
    full_refresh: bool = False,
    days: DateRange | None = None,
) -> PlanStep:
    """Return the step of a task whose inputs are all known. An input that is None does not exist, which is a mistake.

    Reasons name the branch of an existing result if it is not `branch`.
    """
    refuse_missing(task, [table for table in task.input_tables if inputs.get(table) is None])
    heads = {table: head for table, head in inputs.items() if head is not None}
    case = TaskCase(task, fingerprint, heads, branch, full_refresh, days)
    lookup_key = (task.table, case.key)
    return decide_case(case, None if case.forced_reason else facts.results([lookup_key]).get(lookup_key), facts)


def decide_case(case: TaskCase, existing_result: TaskResult | None, facts: Facts) -> PlanStep:
    """Return the step of a case, given the existing result for its key, if any."""
    if case.forced_reason:
        return _full_step(case, facts, case.forced_reason)
    if existing_result is not None and case.days is None:
        return reuse_or_skip(case, existing_result, facts)
    head = facts.head(case.task.table)
    base = facts.latest_result(case.task.table, head) if head is not None else None
    reason = explain_unusable_base(case, head, base)
    if case.days is not None and reason is None and base is not None and head is not None:
        return _decide_backfill(case, existing_result, head, base, facts)
    if reason is not None or base is None:
        usual_step = _full_step(case, facts, reason or reasons.NOT_YET)
    else:
        usual_step = _decide_from_base(case, base, facts)
        if full_computation_reason(case.task, base.full_reason):
            return usual_step  # starting from another result of the same code would need a full computation too
    return usual_step if case.days is not None else _with_least_change(case, usual_step, facts)


def _with_least_change(case: TaskCase, usual_step: PlanStep, facts: Facts) -> PlanStep:
    """Return a step that continues a result which the table does not hold, if `usual_step` computes everything."""
    if usual_step.analyse or usual_step.action != "full":  # file counts don't show how few rows changed
        return usual_step
    best = usual_step
    for result in iter_detached_results(case, facts):
        step = _decide_from_base(case, result, facts)
        if step.action in ("rows", "slices") and _has_smaller_change(case, step, best, facts):
            best = replace(
                step, reason=f"{step.reason}; {reasons.describe_start(result, case.branch)}", has_detached_base=True
            )
    return best


def _has_smaller_change(case: TaskCase, step: PlanStep, other: PlanStep, facts: Facts) -> bool:
    """Return whether a step processes a smaller change than another step."""
    if other.action == "full" or other.base is None or step.base is None:
        return other.action == "full"
    return count_changed_rows(case, step.base, facts) < count_changed_rows(case, other.base, facts)


def _decide_backfill(
    case: TaskCase, existing_result: TaskResult | None, head: TableVersion, base: TaskResult, facts: Facts
) -> PlanStep:
    """Return the step of a case in a backfill, which computes slices of some days even if nothing changed."""
    days = case.days
    assert days is not None
    date_slices = (
        find_date_slices(case, head, facts) if full_computation_reason(case.task, base.full_reason) is None else None
    )
    if date_slices is None:
        return (
            replace(_full_step(case, facts, describe_full_backfill(days)), requested_days=RequestedDays(days))
            if days.is_start
            else decide_case(replace(case, days=None), existing_result, facts)
        )
    usual_step = PlanStep(case.task.table, "skip", reasons.UNCHANGED, key=case.key, head=head)
    if find_changed_inputs(case, base):
        usual_step = _decide_from_base(case, base, facts)
    if usual_step.action == "full":
        return replace(usual_step, analyse=False)
    step_or_reason = add_requested_days(
        usual_step, days, base, date_slices, total_input_size(case.inputs.items(), facts)
    )
    return (
        replace(_full_step(case, facts, step_or_reason), requested_days=RequestedDays(days))
        if isinstance(step_or_reason, str)
        else step_or_reason
    )


def reuse_or_skip(case: TaskCase, existing_result: TaskResult, facts: Facts) -> PlanStep:
    """Return the step of a case whose result exists: skip if the table already holds it, else reuse it."""
    table, head = case.task.table, facts.head(case.task.table)
    if (
        head is not None
        and head.content == existing_result.head.content
        and has_same_quarantine(case.task, existing_result, facts)
    ):
        return PlanStep(table, "skip", reasons.UNCHANGED, key=case.key, head=head, existing_result=existing_result)
    reason = reasons.describe_known_result(existing_result, case.branch)
    if head is not None and facts.latest_result(table, head) is None:
        reason = f"{reasons.describe_outside_change(table)}; {reason}"
    return PlanStep(table, "reuse", reason, key=case.key, head=existing_result.head, existing_result=existing_result)


def total_input_size(
    heads: Iterable[tuple[TableName, TableVersion | None]], facts: Facts
) -> tuple[int | None, int | None]:
    """Sum the rows and bytes of table versions; both are None if one size is not known."""
    sizes = [facts.size(table, head) if head is not None and head.location else None for table, head in heads]
    known_sizes = [size for size in sizes if size is not None]
    if len(known_sizes) < len(sizes):
        return None, None
    return sum(size.rows for size in known_sizes), sum(size.bytes for size in known_sizes)


def _decide_from_base(case: TaskCase, base: TaskResult, facts: Facts) -> PlanStep:
    """Return the step of a case that differs from `base` only in its inputs."""
    base = choose_nearest_inputs(case, base, facts)
    task, changed = case.task, find_changed_inputs(case, base)
    change_sizes = {table: facts.change_size(table, base.inputs[table], case.inputs[table]) for table in changed}
    change_reason = reasons.join_reasons(
        [reasons.describe_change(table, change) for table, change in change_sizes.items()]
    )
    if not any(_may_change_rows(change) for change in change_sizes.values()):
        return _full_step(case, facts, change_reason, base=base, changed=changed, analyse=True)
    if not has_same_quarantine(task, base, facts):  # the same rows, but another branch quarantined different ones
        return _full_step(
            case, facts, f"{change_reason}; {task.quarantine_table} holds other rows than were set aside with it"
        )
    if reason := full_computation_reason(task, base.full_reason):
        return _full_step(case, facts, f"{change_reason}; {reason}", base=base, changed=changed)
    if task.options.by and not (task.options.rowwise and all(_is_append(change) for change in change_sizes.values())):
        return _decide_by_slices(case, base, facts, change_sizes, change_reason)
    if not task.options.rowwise or not all(_is_whole_files(change) for change in change_sizes.values()):
        return _full_step(case, facts, change_reason, base=base, changed=changed)
    has_removed_files = any(change.files_removed for change in change_sizes.values())
    rows = sum(change.rows_added + change.rows_removed for change in change_sizes.values())
    input_rows, _ = total_input_size(case.inputs.items(), facts)
    if has_removed_files and not task.options.key and not _can_remove_by_value(task, rows, input_rows):
        return _full_step(case, facts, f"{change_reason}, and the task has no key", base=base, changed=changed)
    if input_rows is not None and rows > input_rows:
        return _full_step(
            case,
            facts,
            f"{change_reason}; that is more than the {plural(input_rows, 'row')} to read in full",
        )
    return PlanStep(
        task.table,
        "rows",
        f"{change_reason}; {_describe_removal(task)}" if has_removed_files else change_reason,
        key=case.key,
        base=base,
        changed=changed,
        rows=rows,
        bytes=sum(change.bytes_added + change.bytes_removed for change in change_sizes.values()),
    )


def _can_remove_by_value(task: Task, rows: int, input_rows: int | None) -> bool:
    """Return whether rows can be removed by comparing all their values, which scans the table: only for few rows.

    Not if checks drop or quarantine rows: those are not in the table and can't be matched to the input rows.
    """
    if input_rows is None or rows > COPIES_SHARE * input_rows:
        return False
    return not any(check.on_fail in ("drop", "quarantine") for check in task.checks)


def _describe_removal(task: Task) -> str:
    return f"by key {', '.join(task.options.key)}" if task.options.key else "without a key, by all values of a row"


def _decide_by_slices(
    case: TaskCase, base: TaskResult, facts: Facts, change_sizes: Mapping[TableName, ChangeSize], change_reason: str
) -> PlanStep:
    slice_plan = plan_slices(case, base, change_sizes, facts, total_input_size(case.inputs.items(), facts))
    if isinstance(slice_plan, str):
        return _full_step(case, facts, f"{change_reason}; {slice_plan}" if slice_plan else change_reason)
    return PlanStep(
        case.task.table,
        "slices",
        slice_plan.reason or f"{change_reason}; its slices are found first",
        key=case.key,
        base=base,
        changed=tuple(change_sizes),
        rows=slice_plan.rows,
        bytes=slice_plan.bytes,
        slices=slice_plan.slices,
    )


def _full_step(
    case: TaskCase,
    facts: Facts,
    reason: str,
    *,
    base: TaskResult | None = None,
    changed: tuple[TableName, ...] = (),
    analyse: bool = False,
) -> PlanStep:
    rows, size = total_input_size(case.inputs.items(), facts)
    return PlanStep(
        case.task.table,
        "full",
        reason,
        key=case.key,
        base=base,
        changed=changed,
        rows=rows,
        bytes=size,
        analyse=analyse,
    )


def _may_change_rows(change: ChangeSize) -> bool:
    """Return whether rows may have changed. A new column alone does not change rows for tasks that don't use it."""
    return not change.is_known or bool(
        change.files_added or change.files_removed or change.deletes or change.columns_changed
    )


def _is_append(change: ChangeSize) -> bool:
    """Return whether the change only adds whole files."""
    return _is_whole_files(change) and not change.files_removed


def _is_whole_files(change: ChangeSize) -> bool:
    """Return whether the change only adds or removes whole files, with the same columns as before."""
    return change.is_known and not (change.deletes or change.columns_changed or change.columns_added)
