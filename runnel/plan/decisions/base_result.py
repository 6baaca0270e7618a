"""Choose what a task is computed on from: the result that its table holds, or one that a failed run left. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.plan import reasons
from runnel.plan.fingerprint.difference import difference
from runnel.plan.result_key import task_key
from runnel.plan.slices import is_reference

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.names import TableName
    from runnel.plan.decisions.task import Case
    from runnel.plan.facts import Facts, Head, Movement, Result


def unfit(case: "Case", head: "Head | None", base: "Result | None") -> str | None:
    """Return why nothing can be built on `base`, the result that the table holds now, or None where it can."""
    if head is None:
        return reasons.NOT_YET
    if base is None:
        return reasons.outside(case.task.table)
    if set(base.inputs) != set(case.task.reads):
        return difference(base.code, case.fingerprint) or "it reads other tables"
    if task_key(case.task, case.fingerprint.digest, base.inputs) != base.key:
        return difference(base.code, case.fingerprint) or "its code changed"
    return None


def changed_inputs(case: "Case", base: "Result") -> "tuple[TableName, ...]":
    """Return the inputs whose content is another than the one that `base` was made from, but for references."""
    return tuple(
        table
        for table, head in case.inputs.items()
        if head.content != base.inputs[table].content and not is_reference(case.task, table)
    )


def is_aside(task: "Task", known: "Result", facts: "Facts") -> bool:
    """Tell whether the rows that were set aside are those of a known result."""
    if task.quarantine is None:
        return True
    now = facts.head(task.quarantine)
    return (now.content if now else None) == (known.quarantine.content if known.quarantine else None)


def unheld_results(case: "Case", facts: "Facts") -> "Iterator[Result]":
    """Yield recent results that the table does not hold and that this task can be computed on from, newest first.

    A failed run leaves them, with the code that the task has now. What is in quarantine has to fit, and so do
    references: rows that were made with others are no start.
    """
    if not (case.task.options.by or case.task.options.rowwise):
        return  # it is computed in full in any case
    head = facts.head(case.task.table)
    for result in facts.recent(case.task.table):
        if head is not None and result.head.content == head.content:
            continue
        is_fit = unfit(case, result.head, result) is None and _has_references(case, result)
        if is_fit and is_aside(case.task, result, facts):
            yield result


def with_nearest_inputs(case: "Case", base: "Result", facts: "Facts") -> "Result":
    """Return `base` with each input at that version of the same content since which least has changed.

    A result that a failed run left, or another branch, was made from copies of its own: the same rows in other files.
    """
    inputs = dict(base.inputs)
    for table in changed_inputs(case, base):
        used, now = base.inputs[table], case.inputs[table]
        movement = facts.movement(table, used, now)
        if movement.is_known and not (movement.files_removed or movement.deletes):
            continue  # nothing but news
        for version in facts.versions(table, used.content):
            other = facts.movement(table, version, now)
            if _weight(other) < _weight(movement):
                inputs[table], movement = version, other
    return replace(base, inputs=inputs)


def change_size(case: "Case", base: "Result", facts: "Facts") -> int:
    """Return how many rows lie in the files that came and went since `base`."""
    moves = (facts.movement(table, base.inputs[table], case.inputs[table]) for table in changed_inputs(case, base))
    return sum(move.rows_added + move.rows_removed for move in moves)


def _weight(movement: "Movement") -> tuple[bool, bool, int]:
    """Return what orders changes, the one that is easiest to follow first."""
    is_reshaped = movement.columns_changed or bool(movement.columns_added)
    return not movement.is_known, is_reshaped, movement.rows_added + movement.rows_removed


def _has_references(case: "Case", result: "Result") -> bool:
    heads = case.inputs.items()
    return all(head.content == result.inputs[table].content for table, head in heads if is_reference(case.task, table))
