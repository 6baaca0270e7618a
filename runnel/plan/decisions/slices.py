"""Choose between slices and full for a task computed by slices whose inputs changed. Pure: asks the facts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Task
from runnel.errors import listed
from runnel.names import TableName
from runnel.plan import reasons
from runnel.plan.slices import MOST, Slice, Slices, expressions, told, touched

if TYPE_CHECKING:
    from runnel.plan.facts import Facts, Head, Movement, Result

_CHEAP = 64 << 20  # so many bytes are looked through whatever comes of it


@dataclass(frozen=True)
class Sliced:
    """A computation by slices: which, why, and how much it reads. `reason` is None where Spark finds them."""

    slices: Slices
    reason: str | None = None
    rows: int | None = None
    bytes: int | None = None


def by_slices(
    task: Task,
    inputs: "Mapping[TableName, Head]",
    base: "Result",
    moves: "Mapping[TableName, Movement]",
    facts: "Facts",
    held: tuple[int | None, int | None],
) -> Sliced | str:
    """Return what to compute by slices, or why all has to be computed; `held` are the rows and bytes of all inputs."""
    known: dict[TableName, tuple[Slice, ...] | None] = {}
    for table, move in moves.items():
        texts = expressions(task, table, facts.columns(table, inputs[table]))
        if texts is None:
            return f"it has no {listed(task.options.by)} to tell slices by"
        if not move.is_known or move.columns_changed or move.columns_added:
            return ""
        known[table] = facts.slices(table, base.inputs[table], inputs[table], texts)
    named = {table: found for table, found in known.items() if found is not None}
    keys = touched(task, named) if len(named) == len(known) else None  # what is wrong with a lookback, the run says
    slices = Slices(keys, base.slices)
    if slices.is_most:  # of a task that leaves out most of what it reads
        slices = Slices(keys, slices_to_read(task, inputs, base, facts))
    checked = _checked(task, base)
    if keys is None:
        if _is_most(task, inputs, moves, facts):
            return "that is most of it"
        return Sliced(slices, None)
    why = told(named, len(keys), slices.of)
    if slices.is_most:
        return f"{why}: that is most of them"
    share = slices.share
    rows, size = (int(one * share) if one is not None and share is not None else None for one in held)
    return Sliced(slices, why + checked, rows, size)


def slices_to_read(
    task: Task, inputs: "Mapping[TableName, Head]", base: "Result", facts: "Facts", *more: int
) -> int | None:
    """Return how many slices a full computation would read: those of its inputs, or of the table if it has more.

    `more` are the numbers of slices of inputs that only Spark can count. Looks through the keys of whole inputs where
    files don't tell, so it is only asked where all of them would be read otherwise.
    """
    known = [base.slices, *more]
    for table, head in inputs.items():
        texts = expressions(task, table, facts.columns(table, head))
        if texts is not None:
            known.append(facts.slice_count(table, head, texts))
    return max((number for number in known if number is not None), default=None)


def _is_most(
    task: Task, inputs: "Mapping[TableName, Head]", moves: "Mapping[TableName, Movement]", facts: "Facts"
) -> bool:
    """Tell whether so many rows of the sliced inputs moved that looking for their slices is not worth it."""
    moved = sum(_moved(move) for move in moves.values())
    sliced = [table for table, head in inputs.items() if expressions(task, table, facts.columns(table, head))]
    sizes = [size.rows if (size := facts.size(table, inputs[table])) else 0 for table in sliced]
    return moved > MOST * sum(sizes)


def _moved(move: "Movement") -> int:
    """Return how many rows moved, as far as files tell.

    A file that was written anew holds mostly rows that were there before, as after a change of one slice of the task
    that makes the table; how many, only a look at them tells, which is worth it unless they are very many.
    """
    if move.files_added and move.files_removed and move.bytes_added + move.bytes_removed <= _CHEAP:
        return abs(move.rows_added - move.rows_removed)
    return max(move.rows_added, move.rows_removed)


def _checked(task: Task, base: "Result") -> str:
    """Return what is said of a key that has to be unique beyond its slice."""
    names = {name.lower() for name in task.options.key}
    if not names or names.issuperset(name.lower() for name in task.options.by):
        return ""
    rows = f" of {reasons.counted(base.rows, 'row')}" if base.rows is not None else ""
    return f"; reads the key {', '.join(task.options.key)}{rows} to check that it is unique"
