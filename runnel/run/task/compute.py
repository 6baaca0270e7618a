"""Compute a task on Spark: build its frame, read its plan, write, check, and record the result."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.errors import listed
from runnel.lake.catalog.database import stamp
from runnel.lake.flow_state import results
from runnel.lake.iceberg.partial_tables import Indivisible
from runnel.lake.iceberg.snapshot_descent import check_descent
from runnel.phase_timer import phase
from runnel.plan import reasons
from runnel.plan.decisions.slices import slices_to_read
from runnel.plan.facts import Head, Result
from runnel.plan.slices import expressions, in_full_reason, is_most, lookback, told
from runnel.run.analysis.plan_checks import Analysis, analyse, judge, same_use
from runnel.run.content_tally import Tally
from runnel.run.provenance.run_basis import made_by
from runnel.run.results.run_result import Done
from runnel.run.slices.find_changed import find, release
from runnel.run.slices.keys import restrict
from runnel.run.slices.partition_layout import partition_of
from runnel.run.slices.replace import by_columns
from runnel.run.slices.requested_keys import with_asked
from runnel.run.task.build_frame import build
from runnel.run.task.changed_inputs import parts
from runnel.run.task.execution_check import watched
from runnel.run.task.refresh_table import Outcome, Unfit, full, rows, slices
from runnel.run.task.timeout import within
from runnel.run.task.unchanged_rows import have_same_rows
from runnel.run.task_context import Context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.declare.model.flow import Task
    from runnel.names import TableName
    from runnel.plan.steps import Step
    from runnel.run.run_context import Work


def compute(work: "Work", task: "Task", step: "Step", inputs: "Mapping[TableName, Head]") -> Done:
    """Compute a task and return what became of its table."""
    head = work.heads.get(task.table)
    if head is not None and not step.is_unheld and have_same_rows(work, step, inputs):
        assert step.base is not None
        used = Analysis(columns=step.base.columns)
        _record(work, task, step, inputs, used, _unchanged(head, step.base), step.base.why_whole)
        return Done(task.table, "skip", "skipped", f"{step.reason}; the rows are the same")
    with phase("spark"):
        loan = work.borrow()
    context = Context(work.store, loan.slot, loan.session, work.order.run, work.order.started_at, work.findings)
    with _grouped(work, task), within(work, task):
        if step.action in ("rows", "slices"):
            some = _rows if step.action == "rows" else _slices
            try:
                _claim_base(work, task, step)
                return some(work, task, step, inputs, context)
            except (Unfit, Indivisible) as error:
                step = replace(step, action="full", reason=f"{step.reason}; in full, because {error.what}")
        return _full(work, task, step, inputs, context)


def _claim_base(work: "Work", task: "Task", step: "Step") -> None:
    """Make sure that a result which no branch may hold stays until the run ends; raise Unfit if gc let it go."""
    if step.is_unheld and (step.base is None or not results.use(work.store.db, step.base)):
        raise Unfit(task, "the result to start from is gone (retention)")


def _start(work: "Work", task: "Task", step: "Step") -> "Head | None":
    """Return the version of a task's table that a step starts from."""
    if step.is_unheld and step.base is not None and step.action in ("rows", "slices"):
        return step.base.head
    return work.heads.get(task.table)


def _full(work: "Work", task: "Task", step: "Step", inputs: "Mapping[TableName, Head]", context: Context) -> Done:
    frame, found, why_whole = _followed(work, task, inputs, context)
    warnings = (*judge(task, found), *_told_whole(task, why_whole))
    head = work.heads.get(task.table)
    if step.analyse and head is not None and step.base is not None and _is_same(work, step, inputs, found):
        _record(work, task, step, inputs, found, _unchanged(head, step.base), why_whole)
        return Done(task.table, "skip", "skipped", f"{step.reason}, which it does not use")
    work.check()
    partition = partition_of(work, task, inputs, head, frame.schema)
    made = full(context, task, frame, head, partition)
    return _finish(work, task, step, inputs, found, made, warnings, why_whole)


def _slices(work: "Work", task: "Task", step: "Step", inputs: "Mapping[TableName, Head]", context: Context) -> Done:
    """Compute the slices that changed, from the rows that belong to them."""
    assert step.base is not None
    base, head = step.base, _start(work, task, step)
    assert head is not None
    why_whole = base.why_whole
    if why_whole is None:  # of an earlier Runnel, which looked less closely
        why_whole = _followed(work, task, inputs, context)[2]
    if reason := in_full_reason(task, why_whole):
        return _full(work, task, replace(step, action="full", reason=reason), inputs, context)
    sliced = _sliced(work, task, inputs)
    found = find(work, context, task, step, inputs, sliced)
    keys, changed = found.keys, found.keys.number
    if step.asked is not None:
        keys = with_asked(context, task, keys, step.asked, sliced)
    try:
        start = f"; {reasons.starting_from(base, work.order.branch)}" if step.is_unheld else ""
        why = step.reason if step.asked is not None else told(found.changes, changed, base.slices) + start
        used = Analysis(columns=base.columns)
        if not keys.number and step.is_unheld:
            return _finish(work, task, step, inputs, used, _unchanged(head, base), (), why_whole)
        if not keys.number:
            _record(work, task, step, inputs, used, _unchanged(head, base), why_whole)
            return Done(task.table, "skip", "skipped", f"{step.reason}; no slice differs")
        of = base.slices
        if is_most(changed, of):
            of = slices_to_read(task, inputs, base, work.facts, *_counted(context, sliced))
            why = told(found.changes, changed, of) + start if step.asked is None else why
        if is_most(changed, of):  # what is asked for has been weighed before
            return _full(
                work, task, replace(step, action="full", reason=f"{why}: that is most of them"), inputs, context
            )
        frames = {table: context.session.table(context.identifier(table)) for table in task.reads}
        frames |= {
            table: restrict(frames[table], keys.with_earlier(lookback(task, table)), by) for table, by in sliced.items()
        }
        work.check()
        frame = restrict(build(task, frames, context.session, work.root), keys, by_columns(task))
        made = slices(context, task, frame, keys, head, base.tally, base.slices)
        return _finish(work, task, replace(step, reason=why), inputs, used, made, (), why_whole)
    finally:
        release(keys)


def _counted(context: Context, sliced: "Mapping[TableName, tuple[str, ...]]") -> "Iterator[int]":
    """Yield how many slices those inputs have whose slices are named by more than their columns."""
    for table, texts in sliced.items():
        if not all(text.strip("`").isidentifier() for text in texts):
            rows = context.session.table(context.identifier(table))
            yield rows.selectExpr(*(f"({text})" for text in texts)).distinct().count()


def _sliced(work: "Work", task: "Task", inputs: "Mapping[TableName, Head]") -> "dict[TableName, tuple[str, ...]]":
    """Return what names the slices of each input that has them."""
    texts = {table: expressions(task, table, work.facts.columns(table, inputs[table])) for table in task.reads}
    return {table: found for table, found in texts.items() if found is not None}


def _followed(
    work: "Work", task: "Task", inputs: "Mapping[TableName, Head]", context: Context
) -> "tuple[DataFrame, Analysis, str]":
    """Return a task's frame over its whole inputs, its analysis, and why changes alone can't be followed; "" if so."""
    names = {table: context.identifier(table) for table in task.reads}
    if not (task.options.by or task.options.rowwise):
        return *_frame(work, task, context, names), ""
    with watched(context.session) as executions:
        frame, found = _frame(work, task, context, names)
    judge(task, found)
    why = _unaligned_reason(work, task, inputs, context, frame) if task.options.by else None
    if why is None and executions.happened and task.function is not None:
        why = "it computes something while it is called, such as count() or collect()"
    return frame, found, why or ""


def _unaligned_reason(
    work: "Work", task: "Task", inputs: "Mapping[TableName, Head]", context: Context, frame: "DataFrame"
) -> str | None:
    """Return why it can't be seen that slices are made of their own rows alone; refuse a task whose slices are not."""
    from runnel.run.analysis.slice_alignment import SlicedInput, unfollowed

    sliced = {}
    for table, texts in _sliced(work, task, inputs).items():
        name = context.identifier(table)
        sliced[name.replace("`", "")] = SlicedInput(context.session.table(name), texts, lookback(task, table))
    return unfollowed(task, frame, sliced)


def _told_whole(task: "Task", why: str) -> tuple[str, ...]:
    """Return the warning that a task is computed in full each time, and what to do about it."""
    reason = in_full_reason(task, why)
    if reason is None:
        return ()
    if task.options.by:
        fix = "if each slice is made of its own rows alone, write trust_by=True"
    else:
        fix = "return a frame that is made without looking at rows"
    return (f"is computed in full whenever an input changes, because {reason}; {fix}",)


def _unchanged(head: Head, base: Result) -> Outcome:
    """Return the outcome of a table that stays as it is."""
    tally = None if base.tally is None else Tally(*base.tally)
    return Outcome(head, base.rows, tally, base.quarantine, slices=base.slices)


def _rows(work: "Work", task: "Task", step: "Step", inputs: "Mapping[TableName, Head]", context: Context) -> Done:
    """Compute the rows that came and those that went."""
    head = _start(work, task, step)
    assert step.base is not None and head is not None
    why_whole = step.base.why_whole
    if why_whole is None:
        why_whole = _followed(work, task, inputs, context)[2]
    if reason := in_full_reason(task, why_whole):
        return _full(work, task, replace(step, action="full", reason=reason), inputs, context)
    with parts(work, task, step, inputs, context) as (came, went):
        added, found = _frame(work, task, context, came)
        warnings = judge(task, found)
        removed = _frame(work, task, context, went)[0] if went is not None else None
        if removed is not None and not task.options.key and found.nondeterministic:
            raise Unfit(task, f"it uses {listed(found.nondeterministic)}, which may differ whenever it is computed")
        work.check()
        made = rows(context, task, added, removed, head, step.base.tally)
    return _finish(work, task, step, inputs, found, made, warnings, why_whole)


def _frame(
    work: "Work", task: "Task", context: Context, names: "Mapping[TableName, str]"
) -> "tuple[DataFrame, Analysis]":
    frames = {table: context.session.table(name) for table, name in names.items()}
    frame = build(task, frames, context.session, work.root)
    return frame, analyse(frame, {name.replace("`", ""): table for table, name in names.items()})


def _is_same(work: "Work", step: "Step", inputs: "Mapping[TableName, Head]", found: Analysis) -> bool:
    """Tell whether a task uses none of the columns that its inputs gained."""
    assert step.base is not None
    used = step.base.inputs
    moved = {table: work.facts.movement(table, used[table], inputs[table]) for table in step.changed}
    gained = {table: frozenset(movement.columns_added) for table, movement in moved.items()}
    return same_use(step.base.columns, found, gained)


def _finish(
    work: "Work",
    task: "Task",
    step: "Step",
    inputs: "Mapping[TableName, Head]",
    found: Analysis,
    made: Outcome,
    warnings: tuple[str, ...],
    why_whole: str,
) -> Done:
    before = _start(work, task, step)
    if made.head != before:
        with phase("write"):
            check_descent(work.store, before.location if before else None, made.head.location, work.order.run)
    result = _record(work, task, step, inputs, found, made, why_whole)
    return Done(
        task.table,
        step.action,
        "succeeded",
        step.reason,
        rows=made.written,
        head=made.head,
        aside=made.quarantine,
        set_aside=made.set_aside,
        detail=provenance(result),
        warnings=(*warnings, *made.warnings),
    )


@phase("write")
def _record(
    work: "Work",
    task: "Task",
    step: "Step",
    inputs: "Mapping[TableName, Head]",
    found: Analysis,
    made: Outcome,
    why_whole: str | None,
) -> Result:
    """Keep the result under its key, so that it is known whatever becomes of the run."""
    assert step.key is not None
    work.steps.check(task.table)
    result = Result(
        table=task.table,
        key=step.key,
        head=made.head,
        code=work.fingerprints(task).stored(),
        inputs=dict(inputs),
        run=work.order.run,
        branch=work.order.branch,
        made_at=stamp(work.order.started_at),
        rows=made.rows,
        quarantine=made.quarantine,
        columns=found.columns,
        tally=made.tally,
        slices=made.slices,
        extends=made.extends,
        why_whole=why_whole,
        provenance=made_by(work, task, step, made),
    )
    results.record(work.store.db, result, planned=work.order.planned)
    return result


def provenance(result: Result) -> dict[str, object]:
    """Return what a commit keeps about how a table was made."""
    return {
        **result.provenance,
        "key": result.key,
        "run": result.run,
        "made_at": result.made_at,
        "inputs": {str(table): {"location": h.location, "content": h.content} for table, h in result.inputs.items()},
    }


@contextmanager
def _grouped(work: "Work", task: "Task") -> Iterator[None]:
    """Give Spark's jobs of this thread a name, to watch and to cancel them by."""
    context = work.borrow().session.sparkContext
    context.setJobGroup(f"{work.order.run} {task.table}", f"{task.table}", interruptOnCancel=True)
    try:
        yield
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
