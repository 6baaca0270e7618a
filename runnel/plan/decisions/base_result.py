"""Choose the result that an incremental step starts from: the table's current one, or one of a failed run. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.model.table_version import is_discard_of
from runnel.plan import reasons
from runnel.plan.fingerprint.difference import describe_difference
from runnel.plan.result_key import compute_task_key
from runnel.plan.slices import is_reference

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.model.change_size import ChangeSize
    from runnel.model.table_version import TableVersion
    from runnel.model.task_result import TaskResult
    from runnel.names import TableName
    from runnel.plan.decisions.task import TaskCase
    from runnel.plan.facts import Facts


def explain_unusable_base(case: "TaskCase", head: "TableVersion | None", base: "TaskResult | None") -> str | None:
    """Explain why a step can't start from `base`, the table's current result; return None if it can."""
    if head is None:
        return reasons.NOT_YET
    if base is None:
        return reasons.describe_outside_change(case.task.table)
    if set(base.inputs) != set(case.task.input_tables):
        return describe_difference(base.code, case.fingerprint) or "it reads other tables"
    if compute_task_key(case.task, case.fingerprint.digest, base.inputs) != base.key:
        return describe_difference(base.code, case.fingerprint) or "its code changed"
    return None


def find_changed_inputs(case: "TaskCase", base: "TaskResult") -> "tuple[TableName, ...]":
    """Return the inputs whose content differs from the one that `base` was computed from, without references."""
    return tuple(
        table
        for table, head in case.inputs.items()
        if head.content != base.inputs[table].content and not is_reference(case.task, table)
    )


def has_same_quarantine(task: "Task", result: "TaskResult", facts: "Facts") -> bool:
    """Return whether the quarantine table holds the rows that belong to a result, or held them until a discard."""
    if task.quarantine_table is None:
        return True
    current, recorded = facts.head(task.quarantine_table), result.quarantine
    if current is not None and recorded is not None and is_discard_of(current.content, recorded.content):
        return True
    return (current.content if current else None) == (recorded.content if recorded else None)


def iter_detached_results(case: "TaskCase", facts: "Facts") -> "Iterator[TaskResult]":
    """Yield recent results that the table does not hold but that a step can start from, newest first.

    Failed runs leave such results. The task's code, the quarantined rows and the references must be the same as now.
    """
    if not (case.task.options.by or case.task.options.rowwise):
        return  # such a task is always computed in full
    head = facts.head(case.task.table)
    for result in facts.recent_results(case.task.table):
        if head is not None and result.head.content == head.content:
            continue
        is_usable = explain_unusable_base(case, result.head, result) is None and _has_same_references(case, result)
        if is_usable and has_same_quarantine(case.task, result, facts):
            yield result


def choose_nearest_inputs(case: "TaskCase", base: "TaskResult", facts: "Facts") -> "TaskResult":
    """Return `base` with each input at the version of the same content that has the smallest change since.

    A result of a failed run or another branch may have read its own copies of inputs: the same rows in other files.
    """
    inputs = dict(base.inputs)
    for table in find_changed_inputs(case, base):
        used, current = base.inputs[table], case.inputs[table]
        change = facts.change_size(table, used, current)
        if change.is_known and not (change.files_removed or change.deletes):
            continue  # only added files: no version can be nearer
        for version in facts.find_versions(table, used.content):
            other_change = facts.change_size(table, version, current)
            if _change_cost(other_change) < _change_cost(change):
                inputs[table], change = version, other_change
    return replace(base, inputs=inputs)


def count_changed_rows(case: "TaskCase", base: "TaskResult", facts: "Facts") -> int:
    """Count the rows in the files that were added and removed since `base`."""
    changes = (
        facts.change_size(table, base.inputs[table], case.inputs[table]) for table in find_changed_inputs(case, base)
    )
    return sum(change.rows_added + change.rows_removed for change in changes)


def _change_cost(change: "ChangeSize") -> tuple[bool, bool, int]:
    """Return a sort key for changes, the cheapest to process first."""
    is_reshaped = change.columns_changed or bool(change.columns_added)
    return not change.is_known, is_reshaped, change.rows_added + change.rows_removed


def _has_same_references(case: "TaskCase", result: "TaskResult") -> bool:
    heads = case.inputs.items()
    return all(head.content == result.inputs[table].content for table, head in heads if is_reference(case.task, table))
