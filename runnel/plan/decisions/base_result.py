"""Choose what a task is computed on from: the result that its table holds, or one that a failed run left. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.plan import reasons
from runnel.plan.fingerprint.difference import describe_difference
from runnel.plan.result_key import compute_task_key
from runnel.plan.slices import is_reference

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.model.table_version import TableVersion
    from runnel.names import TableName
    from runnel.plan.decisions.task import TaskCase
    from runnel.plan.facts import ChangeSize, Facts, TaskResult


def explain_unusable_base(case: "TaskCase", head: "TableVersion | None", base: "TaskResult | None") -> str | None:
    """Return why nothing can be built on `base`, the result that the table holds now, or None where it can."""
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
    """Return the inputs whose content is another than the one that `base` was made from, but for references."""
    return tuple(
        table
        for table, head in case.inputs.items()
        if head.content != base.inputs[table].content and not is_reference(case.task, table)
    )


def has_same_quarantine(task: "Task", result: "TaskResult", facts: "Facts") -> bool:
    """Tell whether the rows that were set aside are those of a known result."""
    if task.quarantine_table is None:
        return True
    current = facts.head(task.quarantine_table)
    return (current.content if current else None) == (result.quarantine.content if result.quarantine else None)


def iter_detached_results(case: "TaskCase", facts: "Facts") -> "Iterator[TaskResult]":
    """Yield recent results that the table does not hold and that this task can be computed on from, newest first.

    A failed run leaves them, with the code that the task has now. What is in quarantine has to fit, and so do
    references: rows that were made with others are no start.
    """
    if not (case.task.options.by or case.task.options.rowwise):
        return  # it is computed in full in any case
    head = facts.head(case.task.table)
    for result in facts.recent_results(case.task.table):
        if head is not None and result.head.content == head.content:
            continue
        is_usable = explain_unusable_base(case, result.head, result) is None and _has_same_references(case, result)
        if is_usable and has_same_quarantine(case.task, result, facts):
            yield result


def choose_nearest_inputs(case: "TaskCase", base: "TaskResult", facts: "Facts") -> "TaskResult":
    """Return `base` with each input at that version of the same content since which least has changed.

    A result that a failed run left, or another branch, was made from copies of its own: the same rows in other files.
    """
    inputs = dict(base.inputs)
    for table in find_changed_inputs(case, base):
        used, current = base.inputs[table], case.inputs[table]
        change = facts.change_size(table, used, current)
        if change.is_known and not (change.files_removed or change.deletes):
            continue  # nothing but news
        for version in facts.find_versions(table, used.content):
            other_change = facts.change_size(table, version, current)
            if _change_cost(other_change) < _change_cost(change):
                inputs[table], change = version, other_change
    return replace(base, inputs=inputs)


def count_changed_rows(case: "TaskCase", base: "TaskResult", facts: "Facts") -> int:
    """Return how many rows lie in the files that came and went since `base`."""
    changes = (
        facts.change_size(table, base.inputs[table], case.inputs[table]) for table in find_changed_inputs(case, base)
    )
    return sum(change.rows_added + change.rows_removed for change in changes)


def _change_cost(change: "ChangeSize") -> tuple[bool, bool, int]:
    """Return what orders changes, the one that is easiest to follow first."""
    is_reshaped = change.columns_changed or bool(change.columns_added)
    return not change.is_known, is_reshaped, change.rows_added + change.rows_removed


def _has_same_references(case: "TaskCase", result: "TaskResult") -> bool:
    heads = case.inputs.items()
    return all(head.content == result.inputs[table].content for table, head in heads if is_reference(case.task, table))
