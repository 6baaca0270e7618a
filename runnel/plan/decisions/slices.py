"""Choose whether a task with slices whose inputs changed computes some slices or everything. Pure: reads the facts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Task
from runnel.errors import plural
from runnel.model.slice_key import ChangedSlice
from runnel.names import TableName
from runnel.plan.slices import (
    MOST,
    SliceSelection,
    describe_slices,
    explain_unsliced_input,
    find_touched_keys,
    slice_expressions,
)

if TYPE_CHECKING:
    from runnel.model.change_size import ChangeSize
    from runnel.model.table_version import TableVersion
    from runnel.model.task_result import TaskResult
    from runnel.plan.decisions.task import TaskCase
    from runnel.plan.facts import Facts

_CHEAP_BYTES = 64 << 20  # scanning up to this many bytes is always worth it


@dataclass(frozen=True)
class SlicePlan:
    """A computation by slices: which, why, and how much it reads. `reason` is None if Spark finds the slices."""

    slices: SliceSelection
    reason: str | None = None
    rows: int | None = None
    bytes: int | None = None


def plan_slices(
    case: "TaskCase",
    base: "TaskResult",
    change_sizes: "Mapping[TableName, ChangeSize]",
    facts: "Facts",
    input_size: tuple[int | None, int | None],
) -> SlicePlan | str:
    """Return what to compute by slices, or why everything is computed; `input_size`: rows and bytes of all inputs."""
    task, inputs = case.task, case.inputs
    changed_slices: dict[TableName, tuple[ChangedSlice, ...] | None] = {}
    for table, change in change_sizes.items():
        key_expressions = slice_expressions(task, table, facts.columns(table, inputs[table]))
        if key_expressions is None:
            return explain_unsliced_input(task, table)
        if not change.is_known or change.columns_changed or change.columns_added:
            return ""
        changed_slices[table] = facts.changed_slices(table, base.inputs[table], inputs[table], key_expressions)
    known_slices = {table: table_slices for table, table_slices in changed_slices.items() if table_slices is not None}
    keys = (
        find_touched_keys(task, known_slices) if len(known_slices) == len(changed_slices) else None
    )  # the run reports a wrong lookback
    slices = SliceSelection(keys, base.slices)
    if slices.is_most:  # perhaps only because the task filters out most slices that it reads
        slices = SliceSelection(keys, count_slices_to_read(task, inputs, base, facts))
    key_check_note = _describe_key_check(task, base)
    if keys is None:
        if _moves_most_rows(task, inputs, change_sizes, facts):
            return "that is most of it"
        return SlicePlan(slices, None)
    reason = describe_slices(known_slices, len(keys), slices.total)
    if slices.is_most:
        return f"{reason}: that is most of them"
    share = slices.share
    rows, size = (int(amount * share) if amount is not None and share is not None else None for amount in input_size)
    return SlicePlan(slices, reason + key_check_note, rows, size)


def count_slices_to_read(
    task: Task,
    inputs: "Mapping[TableName, TableVersion]",
    base: "TaskResult",
    facts: "Facts",
    *other_counts: int,
) -> int | None:
    """Return how many slices a full computation would read: those of its inputs, or of the table if it has more.

    `other_counts` are the numbers of slices of inputs that only Spark can count. Reads the keys of whole inputs if
    the metadata of their files is not enough, so call it only if everything would be read anyway.
    """
    counts = [base.slices, *other_counts]
    for table, head in inputs.items():
        key_expressions = slice_expressions(task, table, facts.columns(table, head))
        if key_expressions is not None:
            counts.append(facts.slice_count(table, head, key_expressions))
    return max((number for number in counts if number is not None), default=None)


def _moves_most_rows(
    task: Task,
    inputs: "Mapping[TableName, TableVersion]",
    change_sizes: "Mapping[TableName, ChangeSize]",
    facts: "Facts",
) -> bool:
    """Return whether so many rows of the sliced inputs changed that searching for their slices is not worth it."""
    moved_rows = sum(_count_moved_rows(change) for change in change_sizes.values())
    sliced_tables = [
        table for table, head in inputs.items() if slice_expressions(task, table, facts.columns(table, head))
    ]
    sizes = [size.rows if (size := facts.size(table, inputs[table])) else 0 for table in sliced_tables]
    return moved_rows > MOST * sum(sizes)


def _count_moved_rows(change: "ChangeSize") -> int:
    """Estimate how many rows changed, from file metadata.

    A rewritten file holds mostly unchanged rows, for example after a change of one slice of an upstream task. Only
    reading the files shows how many, which is worth it unless they are very large.
    """
    if change.files_added and change.files_removed and change.bytes_added + change.bytes_removed <= _CHEAP_BYTES:
        return abs(change.rows_added - change.rows_removed)
    return max(change.rows_added, change.rows_removed)


def _describe_key_check(task: Task, base: "TaskResult") -> str:
    """Describe the uniqueness check of a key that spans slices; empty if there is none."""
    names = {name.lower() for name in task.options.key}
    if not names or names.issuperset(name.lower() for name in task.options.by):
        return ""
    rows = f" of {plural(base.rows, 'row')}" if base.rows is not None else ""
    return f"; reads the key {', '.join(task.options.key)}{rows} to check that it is unique"
