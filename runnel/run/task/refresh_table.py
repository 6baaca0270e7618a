"""Refresh a task's table from its frame: shape, write, set aside, check; in full, or only the rows that changed.

Works in the run's slot; nothing is published here. A table that fails is put back to where it was.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Check, Task
from runnel.declare.sql.literals import column, literal
from runnel.errors import RunnelError
from runnel.lake.diff.changed_slices import bounds, count
from runnel.lake.diff.file_delta import delta
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.leases import slots
from runnel.phase_timer import phase
from runnel.plan.facts import Head
from runnel.run import content_tally
from runnel.run.checks.check_verdict import judge
from runnel.run.checks.table_checks import refuse_unreadable, table_checks
from runnel.run.content_tally import NOTHING, Tally
from runnel.run.slices.keys import Keys
from runnel.run.slices.partition_layout import kept_partition
from runnel.run.slices.replace import (
    by_buckets,
    by_columns,
    by_files,
    held,
    is_small,
    others,
    take_out,
    take_out_aside,
)
from runnel.run.write.column_extension import extended
from runnel.run.write.multiset_removal import Incomparable, Remainder, without_copies
from runnel.run.write.quarantine_writer import Put, put, quarantined
from runnel.run.write.row_removal import total_rows, without
from runnel.run.write.target_layout import columns_of, prepare
from runnel.run.write.write_frame import Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.run.task_context import Context


@dataclass(frozen=True)
class Outcome:
    """What a task's table has become. `rows` is how many it has, `written` how many of them are new.

    `tally` is what appended rows are added to; None where it is not known. `quarantine` is the quarantine table now.
    """

    head: Head
    rows: int | None = None
    tally: tuple[int, int, int] | None = None
    quarantine: Head | None = None
    warnings: tuple[str, ...] = ()
    written: int = 0
    set_aside: int = 0
    extends: str | None = None  # the content before, where only columns came
    slices: int | None = None  # how many it has, where it is computed by slices


class Unfit(RunnelError):
    """The table does not have the columns of the rows that came, or other rows; it has to be computed in full."""

    def __init__(self, task: Task, why: str | None = None) -> None:
        what = why or f"`{task.table}` does not have the columns that its task makes now"
        super().__init__("RUN_BASE_UNFIT", what, at=str(task.place), fix="run it with --full-refresh")


@phase("write")
def full(
    context: "Context", task: Task, frame: "DataFrame", base: Head | None, partition: Sequence[str] | None = None
) -> Outcome:
    """Replace all rows. Where the content is that of `base` and the shape fits, the outcome is `base` itself.

    `partition` is how the table is to be parted; as the task says, unless told.
    """
    with _or_back(context, task, base):
        refuse_unreadable(context, frame, _of_table(task))
        shaped = prepare(context.store, task, frame.schema, base, partition=partition)
        before = quarantined(context, task)
        fresh = base is None and before is None
        mode: Mode = "append" if fresh else "overwrite"  # a table that was just made is empty
        made = put(context, task, frame, mode, shaped, before)
        warnings = _checked(context, task, made)
    content = content_tally.content(columns_of(frame.schema), made.written.tally)
    head = Head(made.written.location, content)
    if base is not None and base.content == content and shaped == base.location:
        head = base
        slots.place(context.store.db, context.slot, {task.table: base.location})
    rows, more = made.written.tally.rows, extended(context, task, frame.schema, base)
    number = count(context.store, head.location, task.options.by) if task.options.by else None
    return Outcome(head, rows, made.written.tally, made.quarantine, warnings, rows, made.set_aside, more, number)


@phase("write")
def slices(
    context: "Context",
    task: Task,
    frame: "DataFrame",
    keys: Keys,
    base: Head,
    tally: tuple[int, int, int] | None = None,
    of: int | None = None,
) -> Outcome:
    """Put the rows of a frame where the rows of the slices were; `tally` and `of` are those of `base`.

    Raises Unfit where the table lacks the columns for it.
    """
    with _or_back(context, task, base):
        refuse_unreadable(context, frame, _of_table(task))
        start = prepare(context.store, task, frame.schema, base, partition=kept_partition(context.store, task, base))
        if load(context.store, start).schema().fields != load(context.store, base.location).schema().fields:
            raise Unfit(task)
        aside = take_out_aside(context, task, keys, quarantined(context, task), frame)
        replaced = _replaced(context, task, frame, keys, start, aside, of)
        warnings = _checked(context, task, replaced.made, _with_key_of_slices(context, task, keys))
    made, new = replaced.made, replaced.made.written.tally
    whole = replaced.whole or (Tally(*tally).minus(replaced.gone).plus(new) if tally is not None else None)
    if whole is not None and tally is not None and whole == Tally(*tally):  # the same rows again
        slots.place(context.store.db, context.slot, {task.table: base.location})
        return Outcome(base, whole.rows, whole, made.quarantine, warnings, new.rows, made.set_aside, None, of)
    total = total_rows(context.store, made.written.location)
    content = content_tally.content(columns_of(frame.schema), whole) if whole else made.written.location
    head = Head(made.written.location, content)
    return Outcome(head, total, whole, made.quarantine, warnings, new.rows, made.set_aside, None, replaced.slices)


@dataclass(frozen=True)
class _Replaced:
    """Slices that were replaced: how, what the table is now or what went, and how many slices there are."""

    made: Put
    whole: Tally | None = None
    gone: Tally = NOTHING
    slices: int | None = None


def _replaced(
    context: "Context", task: Task, frame: "DataFrame", keys: Keys, start: str, aside: Head | None, of: int | None
) -> _Replaced:
    """Replace slices in the cheapest way: whole files, their buckets, the whole of a small table, or row by row."""
    where = by_files(context, task, keys, start)
    buckets = by_buckets(context, task, keys, start) if where is None else None
    if buckets is not None:
        return _buckets_replaced(context, task, frame, keys, start, aside, of, buckets)
    if where is None and is_small(context, start):
        with others(context, task, keys, start) as beside:
            made = put(context, task, frame, "rewrite", start, aside, beside=beside.rows)
        number = count(context.store, made.written.location, task.options.by)
        return _Replaced(made, made.written.kept.plus(made.written.tally), slices=number)
    gone, before = held(context, task, keys, start)
    rest = start if where or not gone.rows else take_out(context, task, keys, start, frame)
    made = put(context, task, frame, "replace" if where else "append", rest, aside, where)
    added = delta(context.store, rest, made.written.location).added
    after = count(context.store, made.written.location, task.options.by, added)
    number = of - before + after if of is not None and after is not None else None
    return _Replaced(made, gone=gone, slices=number)


def _buckets_replaced(
    context: "Context",
    task: Task,
    frame: "DataFrame",
    keys: Keys,
    start: str,
    aside: Head | None,
    of: int | None,
    where: str,
) -> _Replaced:
    """Write the buckets that the slices are in once more, with their new rows."""
    with others(context, task, keys, start, where) as beside:
        made = put(context, task, frame, "rewrite", start, aside, where, beside.rows)
        changed = delta(context.store, start, made.written.location)
        before = beside.before(sum(entry.file.record_count for entry in changed.removed))
    gone = before.minus(made.written.kept)
    by = task.options.by
    old = count(context.store, start, by, changed.removed)
    new = count(context.store, made.written.location, by, changed.added)
    number = of - old + new if of is not None and old is not None and new is not None else None
    return _Replaced(made, gone=gone, slices=number)


@phase("write")
def rows(
    context: "Context",
    task: Task,
    added: "DataFrame",
    removed: "DataFrame | None",
    base: Head,
    tally: tuple[int, int, int] | None = None,
) -> Outcome:
    """Take out what the task makes of rows that went, and append what it makes of rows that came.

    Rows that went are known by the task's key, or without one by all of their values, as a multiset. `tally` is that of
    `base`. Raises Unfit where the table lacks the columns for it.
    """
    with _or_back(context, task, base):
        refuse_unreadable(context, added, _of_table(task))
        start = prepare(context.store, task, added.schema, base)
        if load(context.store, start).schema().fields != load(context.store, base.location).schema().fields:
            raise Unfit(task)
        rest, aside = start, quarantined(context, task)
        gone: Tally | None = None
        if removed is not None and task.options.key:
            rest, aside = without(context, task, removed, start, aside)
            _refuse_more_removed(context, task, removed, (start, rest))
        elif removed is not None:
            remainder = _remainder(context, task, removed, start)
            rest, gone = remainder.location, remainder.removed
            added = added.unionByName(remainder.rewritten)
        counted = () if tally is None else None  # the content is not told by the rows then
        made = put(context, task, added, "append", rest, aside, content=counted)
        warnings = _checked(context, task, made, _with_key_of_added(context, task, rest, made.written.location))
    total, new = total_rows(context.store, made.written.location), made.written.tally
    if tally is None or (rest != start and gone is None):
        return _outcome(Head(made.written.location, made.written.location), total, None, made, warnings)
    whole = Tally(*tally).minus(gone or NOTHING).plus(new)
    if whole == Tally(*tally):
        slots.place(context.store.db, context.slot, {task.table: base.location})
        return _outcome(base, whole.rows, whole, made, warnings)
    head = Head(made.written.location, content_tally.content(columns_of(added.schema), whole))
    return _outcome(head, total, whole, made, warnings)


def _remainder(context: "Context", task: Task, removed: "DataFrame", start: str) -> Remainder:
    try:
        return without_copies(context, task, removed, start)
    except Incomparable as error:
        raise Unfit(task, str(error)) from error


def _outcome(head: Head, total: int, tally: Tally | None, made: Put, warnings: tuple[str, ...]) -> Outcome:
    return Outcome(head, total, tally, made.quarantine, warnings, made.written.tally.rows, made.set_aside)


def _checked(context: "Context", task: Task, made: Put, changed: str | None = None) -> tuple[str, ...]:
    """Judge the checks of rows and of the table, and that the key of a task with slices or rows is unique.

    `changed` are the rows among which a key may stand twice, as SQL; all of the table if left out.
    """
    table = context.identifier(task.table)
    found = table_checks(context, table, _of_table(task))
    if (task.options.by or task.options.rowwise) and task.options.key:
        found += table_checks(context, changed or table, (_unique(task),))
    findings = (*made.written.findings, *found)
    aside = {id(one.check): one for one in made.bad}  # the rows that are left pass these
    context.findings[task.table] = tuple(aside.get(id(one.check), one) for one in findings)
    return (*judge(task, findings), *made.warnings)


def _with_key_of_slices(context: "Context", task: Task, keys: Keys) -> str:
    """Return the rows that may have a key of slices that were computed: only theirs if the key names its slice."""
    table, condition = context.identifier(task.table), keys.condition(by_columns(task))
    names = {name.lower() for name in task.options.key}
    if condition is None or not names.issuperset(name.lower() for name in task.options.by):
        return table
    return f"(SELECT * FROM {table} WHERE {condition})"


def _with_key_of_added(context: "Context", task: Task, before: str, after: str) -> str:
    """Return the rows that may have a key of rows that were added, as the bounds of their files tell."""
    table = context.identifier(task.table)
    if not task.options.key:
        return table
    name = task.options.key[0]
    ends = bounds(context.store, after, name, delta(context.store, before, after).added)
    return (
        f"(SELECT * FROM {table} WHERE {column(name)} BETWEEN {literal(ends[0])} AND {literal(ends[1])})"
        if ends
        else table
    )


def _refuse_more_removed(context: "Context", task: Task, removed: "DataFrame", versions: tuple[str, str]) -> None:
    """Raise Unfit where more rows went than the task makes of what was removed: rows of others have the same key."""
    before, after = (total_rows(context.store, version) for version in versions)
    if before - after and before - after > removed.count():
        raise Unfit(task, f"its key {', '.join(task.options.key)} is not unique")


def _unique(task: Task) -> Check:
    return Check("unique", f"key {', '.join(task.options.key)}", columns=task.options.key, place=task.place)


def _of_table(task: Task) -> tuple[Check, ...]:
    return tuple(check for check in task.checks if not check.is_row)


@contextmanager
def _or_back(context: "Context", task: Task, base: Head | None) -> Iterator[None]:
    """Put the tables of a task back to where they were if it fails."""
    try:
        yield
    except BaseException:
        before = {task.table: base.location if base else None}
        if task.quarantine is not None:
            aside = quarantined(context, task)
            before[task.quarantine] = aside.location if aside else None
        with suppress(Exception):  # what went wrong first is what is told
            slots.place(context.store.db, context.slot, before)
        raise
