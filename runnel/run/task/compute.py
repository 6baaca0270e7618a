"""Compute a task on Spark: build its frame, read its plan, write, check, and record the result."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.errors import join_names
from runnel.lake.catalog.database import format_time
from runnel.lake.flow_state import results
from runnel.lake.iceberg.partial_tables import PartialTableError
from runnel.lake.iceberg.snapshot_descent import check_descent
from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.phase_timer import measure_phase
from runnel.plan import reasons
from runnel.plan.decisions.slices import count_slices_to_read
from runnel.plan.slices import (
    describe_slices,
    explain_unsliced_task,
    full_computation_reason,
    is_most_slices,
    lookback_of,
    may_have_slices,
    slice_expressions,
)
from runnel.run.analysis.plan_checks import PlanAnalysis, analyse_plan, check_analysis, uses_same_columns
from runnel.run.content_tally import ContentTally
from runnel.run.provenance.run_basis import build_provenance, describe_row_relation
from runnel.run.results.run_result import StepResult
from runnel.run.slices.find_changed import ChangedSlices, find_changed_slices, release_keys
from runnel.run.slices.keys import SliceKeys, restrict_to_slices
from runnel.run.slices.partition_layout import choose_partition
from runnel.run.slices.replace import list_slice_columns
from runnel.run.slices.requested_keys import add_requested_keys
from runnel.run.task.build_frame import build_frame
from runnel.run.task.changed_inputs import open_changed_inputs
from runnel.run.task.execution_check import observe_executions
from runnel.run.task.refresh_table import (
    BaseVersion,
    RefreshResult,
    SchemaMismatch,
    apply_row_changes,
    replace_all_rows,
    replace_slices,
)
from runnel.run.task.timeout import limit_time
from runnel.run.task.unchanged_rows import have_same_rows
from runnel.run.task_context import TaskContext, TaskRun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.declare.model.flow import Task
    from runnel.names import TableName
    from runnel.run.run_context import RunContext


def compute_task(task_run: TaskRun) -> StepResult:
    """Compute a task and return the result of its step."""
    run_context, task, step, head = task_run.run_context, task_run.task, task_run.step, task_run.head
    if head is not None and not step.has_detached_base and have_same_rows(task_run):
        assert step.base is not None
        return _skip_unchanged(
            task_run, PlanAnalysis(columns=step.base.columns), step.base.full_reason, "; the rows are the same"
        )
    with measure_phase("spark"):
        slot_lease = run_context.acquire_slot()
    context = task_run.make_context(slot_lease)
    with _name_spark_jobs(run_context, task), limit_time(run_context, task):
        if step.action in ("rows", "slices"):
            compute_changes = _compute_rows if step.action == "rows" else _compute_slices
            try:
                _claim_base(task_run)
                return compute_changes(task_run, context)
            except (SchemaMismatch, PartialTableError) as error:
                task_run = task_run.in_full(f"{step.reason}; in full, because {error.what}")
        return _compute_full(task_run, context)


def _claim_base(task_run: TaskRun) -> None:
    """Retain a result that no branch holds until the run ends; raise SchemaMismatch if gc removed it."""
    step, db = task_run.step, task_run.run_context.store.db
    if step.has_detached_base and (step.base is None or not results.mark_used(db, step.base)):
        raise SchemaMismatch(task_run.task, "the result to start from is gone (retention)")


def _skip_unchanged(task_run: TaskRun, analysis: PlanAnalysis, full_reason: str | None, why: str) -> StepResult:
    """Record that the current table is the result of the current inputs, too; `why` is added to the step's reason."""
    head, base = task_run.start_version, task_run.step.base
    assert head is not None and base is not None
    _record_result(task_run, analysis, _make_unchanged_result(head, base), full_reason)
    return StepResult(task_run.task.table, "skip", "skipped", f"{task_run.step.reason}{why}")


def _compute_full(task_run: TaskRun, context: TaskContext) -> StepResult:
    task, step, head = task_run.task, task_run.step, task_run.head
    frame, analysis, full_reason = _build_and_follow(task_run, context)
    warnings = (*check_analysis(task, analysis), *_warn_full_computation(task, full_reason))
    if step.analyse and head is not None and step.base is not None and _uses_no_gained_column(task_run, analysis):
        return _skip_unchanged(task_run, analysis, full_reason, ", which it does not use")
    task_run.run_context.raise_if_cancelled()
    partition = choose_partition(task_run, head, frame.schema)
    refresh = replace_all_rows(context, task, frame, head, partition)
    return _finish_step(task_run, analysis, refresh, full_reason, warnings)


def _compute_slices(task_run: TaskRun, context: TaskContext) -> StepResult:
    """Compute the slices that changed, from the rows that belong to them."""
    task, step = task_run.task, task_run.step
    assert step.base is not None
    full_reason = step.base.full_reason
    if full_reason is None:  # recorded by an earlier release, which did not check this
        full_reason = _build_and_follow(task_run, context)[2]
    if reason := full_computation_reason(task, full_reason):
        return _compute_full(task_run.in_full(reason), context)
    expressions_by_input = _find_slice_expressions(task_run)
    changed_slices = find_changed_slices(task_run, context, expressions_by_input)
    keys = changed_slices.keys
    if step.requested_days is not None:
        keys = add_requested_keys(context, task, keys, step.requested_days, expressions_by_input)
    try:
        if not keys.count:
            return _keep_all_slices(task_run, full_reason)
        why, slice_count = _describe_changed_slices(task_run, context, changed_slices, expressions_by_input)
        if is_most_slices(changed_slices.keys.count, slice_count):  # for requested days the planner has decided before
            return _compute_full(task_run.in_full(f"{why}: that is most of them"), context)
        refresh = _refresh_slices(task_run, context, keys, expressions_by_input)
        computed_run = replace(task_run, step=replace(step, reason=why))
        return _finish_step(computed_run, PlanAnalysis(columns=step.base.columns), refresh, full_reason)
    finally:
        release_keys(keys)


def _keep_all_slices(task_run: TaskRun, full_reason: str) -> StepResult:
    """Return the result of a step in which no slice differs; a detached base becomes the version of the table."""
    base, head = task_run.step.base, task_run.start_version
    assert base is not None and head is not None
    analysis = PlanAnalysis(columns=base.columns)
    if task_run.step.has_detached_base:
        return _finish_step(task_run, analysis, _make_unchanged_result(head, base), full_reason)
    return _skip_unchanged(task_run, analysis, full_reason, "; no slice differs")


def _describe_changed_slices(
    task_run: TaskRun,
    context: TaskContext,
    changed_slices: ChangedSlices,
    expressions_by_input: "Mapping[TableName, tuple[str, ...]]",
) -> tuple[str, int | None]:
    """Return why slices are computed, and how many slices there are; counted again if most of them changed."""
    step, run_context = task_run.step, task_run.run_context
    assert step.base is not None
    changed, slice_count = changed_slices.keys.count, step.base.slices
    if is_most_slices(changed, slice_count):
        slice_count = count_slices_to_read(
            task_run.task,
            task_run.inputs,
            step.base,
            run_context.facts,
            *_count_input_slices(context, expressions_by_input),
        )
    if step.requested_days is not None:
        return step.reason, slice_count
    start_note = f"; {reasons.describe_start(step.base, run_context.spec.branch)}" if step.has_detached_base else ""
    return describe_slices(changed_slices.changes, changed, slice_count) + start_note, slice_count


def _refresh_slices(
    task_run: TaskRun,
    context: TaskContext,
    keys: SliceKeys,
    expressions_by_input: "Mapping[TableName, tuple[str, ...]]",
) -> RefreshResult:
    """Compute slices from the rows of the inputs that belong to them, and replace them in the table."""
    task, base, head = task_run.task, task_run.step.base, task_run.start_version
    assert base is not None and head is not None
    frames = {table: context.session.table(context.identifier(table)) for table in task.input_tables}
    frames |= {
        table: restrict_to_slices(frames[table], keys.with_earlier(lookback_of(task, table)), key_expressions)
        for table, key_expressions in expressions_by_input.items()
    }
    task_run.run_context.raise_if_cancelled()
    frame = restrict_to_slices(
        build_frame(task, frames, context.session, task_run.run_context.root, scheduled_at=context.scheduled_at),
        keys,
        list_slice_columns(task),
    )
    return replace_slices(context, task, frame, keys, BaseVersion(head, base.tally, base.slices))


def _count_input_slices(
    context: TaskContext, expressions_by_input: "Mapping[TableName, tuple[str, ...]]"
) -> "Iterator[int]":
    """Yield the number of slices of each input whose slices are given by expressions, not by plain columns."""
    for table, texts in expressions_by_input.items():
        if not all(text.strip("`").isidentifier() for text in texts):
            rows = context.session.table(context.identifier(table))
            yield rows.selectExpr(*(f"({text})" for text in texts)).distinct().count()


def _find_slice_expressions(task_run: TaskRun) -> "dict[TableName, tuple[str, ...]]":
    """Return the expressions that give the slice of a row, for each input that has slices."""
    task, facts = task_run.task, task_run.run_context.facts
    expressions_by_table = {
        table: slice_expressions(task, table, facts.columns(table, task_run.inputs[table]))
        for table in task.input_tables
    }
    return {
        table: key_expressions for table, key_expressions in expressions_by_table.items() if key_expressions is not None
    }


def _build_and_follow(task_run: TaskRun, context: TaskContext) -> "tuple[DataFrame, PlanAnalysis, str]":
    """Return a task's frame over whole inputs, its analysis, and why computing only changes is unsafe; "" if it is."""
    task = task_run.task
    identifiers = {table: context.identifier(table) for table in task.input_tables}
    if not (task.options.by or task.options.rowwise):
        return *_build_analysed_frame(task_run, context, identifiers), ""
    with observe_executions(context.session) as executions:
        frame, analysis = _build_analysed_frame(task_run, context, identifiers)
    check_analysis(task, analysis)
    why = _explain_unaligned(task_run, context, frame) if task.options.by else None
    if why is None and executions.happened and task.function is not None:
        why = "it computes something while it is called, such as count() or collect()"
    return frame, analysis, why or ""


def _explain_unaligned(task_run: TaskRun, context: TaskContext, frame: "DataFrame") -> str | None:
    """Return why the plan doesn't show that slices are independent; refuse a task whose slices are not."""
    from runnel.run.analysis.slice_alignment import SlicedInput, check_slice_alignment

    task, sliced_inputs = task_run.task, {}
    for table, texts in _find_slice_expressions(task_run).items():
        name = context.identifier(table)
        sliced_inputs[name.replace("`", "")] = SlicedInput(context.session.table(name), texts, lookback_of(task, table))
    why = check_slice_alignment(task, frame, sliced_inputs)
    if why is None and not sliced_inputs and any(may_have_slices(task, table) for table in task.input_tables):
        return explain_unsliced_task(task)
    return why


def _warn_full_computation(task: "Task", why: str) -> tuple[str, ...]:
    """Return the warning that a task is always computed in full, and what to do about it."""
    reason = full_computation_reason(task, why)
    if reason is None:
        return ()
    if why == explain_unsliced_task(task):
        fix = "say in by_input= what it is made from"
    elif task.options.by:
        fix = "if each slice is computed from its own rows only, write trust_by=True"
    else:
        fix = "return a frame that is made without looking at rows"
    return (f"is computed in full whenever an input changes, because {reason}; {fix}",)


def _make_unchanged_result(head: TableVersion, base: TaskResult) -> RefreshResult:
    """Return the result for a table that stays as it is."""
    tally = None if base.tally is None else ContentTally(*base.tally)
    return RefreshResult(head, base.rows, tally, base.quarantine, slice_count=base.slices)


def _compute_rows(task_run: TaskRun, context: TaskContext) -> StepResult:
    """Compute only the rows that were added to and removed from the inputs."""
    task, base, head = task_run.task, task_run.step.base, task_run.start_version
    assert base is not None and head is not None
    full_reason = base.full_reason
    if full_reason is None:
        full_reason = _build_and_follow(task_run, context)[2]
    if reason := full_computation_reason(task, full_reason):
        return _compute_full(task_run.in_full(reason), context)
    with open_changed_inputs(task_run, context) as (added_identifiers, removed_identifiers):
        added_rows, analysis = _build_analysed_frame(task_run, context, added_identifiers)
        warnings = check_analysis(task, analysis)
        removed_rows = (
            _build_analysed_frame(task_run, context, removed_identifiers)[0]
            if removed_identifiers is not None
            else None
        )
        if removed_rows is not None and not task.options.key and analysis.nondeterministic:
            raise SchemaMismatch(
                task, f"it uses {join_names(analysis.nondeterministic)}, which may differ each time it is computed"
            )
        task_run.run_context.raise_if_cancelled()
        refresh = apply_row_changes(context, task, added_rows, removed_rows, BaseVersion(head, base.tally))
    return _finish_step(task_run, analysis, refresh, full_reason, warnings)


def _build_analysed_frame(
    task_run: TaskRun, context: TaskContext, identifiers: "Mapping[TableName, str]"
) -> "tuple[DataFrame, PlanAnalysis]":
    frames = {table: context.session.table(name) for table, name in identifiers.items()}
    root, scheduled_at = task_run.run_context.root, context.scheduled_at
    frame = build_frame(task_run.task, frames, context.session, root, scheduled_at=scheduled_at)
    return frame, analyse_plan(frame, {name.replace("`", ""): table for table, name in identifiers.items()})


def _uses_no_gained_column(task_run: TaskRun, analysis: PlanAnalysis) -> bool:
    """Return whether a task uses none of the columns that its inputs gained."""
    base, facts = task_run.step.base, task_run.run_context.facts
    assert base is not None
    change_sizes = {
        table: facts.change_size(table, base.inputs[table], task_run.inputs[table]) for table in task_run.step.changed
    }
    gained_columns = {table: frozenset(change_size.columns_added) for table, change_size in change_sizes.items()}
    return uses_same_columns(base.columns, analysis, gained_columns)


def _finish_step(
    task_run: TaskRun,
    analysis: PlanAnalysis,
    refresh: RefreshResult,
    full_reason: str,
    warnings: tuple[str, ...] = (),
) -> StepResult:
    run_context, step, start_version = task_run.run_context, task_run.step, task_run.start_version
    if refresh.head != start_version:
        start_location = start_version.location if start_version else None
        with measure_phase("write"):
            check_descent(run_context.store, start_location, refresh.head.location, run_context.spec.run)
    result = _record_result(task_run, analysis, refresh, full_reason)
    return StepResult(
        task_run.task.table,
        step.action,
        "succeeded",
        step.reason,
        rows=refresh.written_rows,
        head=refresh.head,
        quarantine=refresh.quarantine,
        set_aside=refresh.quarantined_rows,
        detail=describe_provenance(result),
        warnings=(*warnings, *refresh.warnings),
    )


@measure_phase("write")
def _record_result(
    task_run: TaskRun, analysis: PlanAnalysis, refresh: RefreshResult, full_reason: str | None
) -> TaskResult:
    """Record the result under its key, so that it can be reused even if the run fails."""
    run_context, task, step = task_run.run_context, task_run.task, task_run.step
    assert step.key is not None
    run_context.step_threads.raise_if_abandoned(task.table)
    result = TaskResult(
        table=task.table,
        key=step.key,
        head=refresh.head,
        code=run_context.fingerprints(task).to_json(),
        inputs=dict(task_run.inputs),
        run=run_context.spec.run,
        branch=run_context.spec.branch,
        made_at=format_time(run_context.spec.started_at),
        rows=refresh.rows,
        quarantine=refresh.quarantine,
        columns=analysis.columns,
        tally=refresh.tally,
        slices=refresh.slice_count,
        extends=refresh.extended_content,
        full_reason=full_reason,
        provenance={
            **build_provenance(run_context, task, step, refresh),
            "relation": describe_row_relation(task, has_slices=not full_reason),
        },
    )
    results.record(run_context.store.db, result, planned_sequence=run_context.spec.planned_sequence)
    return result


def describe_provenance(result: TaskResult) -> dict[str, object]:
    """Return the provenance of a table that a commit records."""
    return {
        **result.provenance,
        "key": result.key,
        "run": result.run,
        "made_at": result.made_at,
        "inputs": {str(table): {"location": h.location, "content": h.content} for table, h in result.inputs.items()},
    }


@contextmanager
def _name_spark_jobs(run_context: "RunContext", task: "Task") -> Iterator[None]:
    """Set a job group for this thread, by which its Spark jobs are watched and cancelled."""
    spark_context = run_context.acquire_slot().session.sparkContext
    spark_context.setJobGroup(f"{run_context.spec.run} {task.table}", f"{task.table}", interruptOnCancel=True)
    try:
        yield
    finally:
        spark_context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
