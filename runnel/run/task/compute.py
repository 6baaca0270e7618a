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
from runnel.plan.slices import describe_slices, full_computation_reason, is_most_slices, lookback_of, slice_expressions
from runnel.run.analysis.plan_checks import PlanAnalysis, analyse_plan, check_analysis, uses_same_columns
from runnel.run.content_tally import ContentTally
from runnel.run.provenance.run_basis import build_provenance
from runnel.run.results.run_result import StepResult
from runnel.run.slices.find_changed import find_changed_slices, release_keys
from runnel.run.slices.keys import restrict_to_slices
from runnel.run.slices.partition_layout import choose_partition
from runnel.run.slices.replace import list_slice_columns
from runnel.run.slices.requested_keys import add_requested_keys
from runnel.run.task.build_frame import build_frame
from runnel.run.task.changed_inputs import open_changed_inputs
from runnel.run.task.execution_check import observe_executions
from runnel.run.task.refresh_table import (
    RefreshResult,
    SchemaMismatch,
    apply_row_changes,
    replace_all_rows,
    replace_slices,
)
from runnel.run.task.timeout import limit_time
from runnel.run.task.unchanged_rows import have_same_rows
from runnel.run.task_context import TaskContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.declare.model.flow import Task
    from runnel.names import TableName
    from runnel.plan.steps import PlanStep
    from runnel.run.run_context import RunContext


def compute_task(
    run_context: "RunContext", task: "Task", step: "PlanStep", inputs: "Mapping[TableName, TableVersion]"
) -> StepResult:
    """Compute a task and return the result of its step."""
    head = run_context.heads.get(task.table)
    if head is not None and not step.has_detached_base and have_same_rows(run_context, step, inputs):
        assert step.base is not None
        analysis = PlanAnalysis(columns=step.base.columns)
        _record_result(
            run_context, task, step, inputs, analysis, _make_unchanged_result(head, step.base), step.base.full_reason
        )
        return StepResult(task.table, "skip", "skipped", f"{step.reason}; the rows are the same")
    with measure_phase("spark"):
        slot_lease = run_context.acquire_slot()
    context = TaskContext(
        run_context.store,
        slot_lease.slot,
        slot_lease.session,
        run_context.spec.run,
        run_context.spec.started_at,
        run_context.findings,
    )
    with _name_spark_jobs(run_context, task), limit_time(run_context, task):
        if step.action in ("rows", "slices"):
            compute_changes = _compute_rows if step.action == "rows" else _compute_slices
            try:
                _claim_base(run_context, task, step)
                return compute_changes(run_context, task, step, inputs, context)
            except (SchemaMismatch, PartialTableError) as error:
                step = replace(step, action="full", reason=f"{step.reason}; in full, because {error.what}")
        return _compute_full(run_context, task, step, inputs, context)


def _claim_base(run_context: "RunContext", task: "Task", step: "PlanStep") -> None:
    """Retain a result that no branch holds until the run ends; raise SchemaMismatch if gc removed it."""
    if step.has_detached_base and (step.base is None or not results.mark_used(run_context.store.db, step.base)):
        raise SchemaMismatch(task, "the result to start from is gone (retention)")


def _find_start_version(run_context: "RunContext", task: "Task", step: "PlanStep") -> "TableVersion | None":
    """Return the version of a task's table that the step builds on."""
    if step.has_detached_base and step.base is not None and step.action in ("rows", "slices"):
        return step.base.head
    return run_context.heads.get(task.table)


def _compute_full(
    run_context: "RunContext",
    task: "Task",
    step: "PlanStep",
    inputs: "Mapping[TableName, TableVersion]",
    context: TaskContext,
) -> StepResult:
    frame, analysis, why_whole = _build_and_follow(run_context, task, inputs, context)
    warnings = (*check_analysis(task, analysis), *_warn_full_computation(task, why_whole))
    head = run_context.heads.get(task.table)
    if (
        step.analyse
        and head is not None
        and step.base is not None
        and _uses_no_gained_column(run_context, step, inputs, analysis)
    ):
        _record_result(run_context, task, step, inputs, analysis, _make_unchanged_result(head, step.base), why_whole)
        return StepResult(task.table, "skip", "skipped", f"{step.reason}, which it does not use")
    run_context.raise_if_cancelled()
    partition = choose_partition(run_context, task, inputs, head, frame.schema)
    refresh = replace_all_rows(context, task, frame, head, partition)
    return _finish_step(run_context, task, step, inputs, analysis, refresh, warnings, why_whole)


def _compute_slices(
    run_context: "RunContext",
    task: "Task",
    step: "PlanStep",
    inputs: "Mapping[TableName, TableVersion]",
    context: TaskContext,
) -> StepResult:
    """Compute the slices that changed, from the rows that belong to them."""
    assert step.base is not None
    base, head = step.base, _find_start_version(run_context, task, step)
    assert head is not None
    why_whole = base.full_reason
    if why_whole is None:  # recorded by an earlier release, which did not check this
        why_whole = _build_and_follow(run_context, task, inputs, context)[2]
    if reason := full_computation_reason(task, why_whole):
        return _compute_full(run_context, task, replace(step, action="full", reason=reason), inputs, context)
    expressions_by_input = _find_slice_expressions(run_context, task, inputs)
    changed_slices = find_changed_slices(run_context, context, task, step, inputs, expressions_by_input)
    keys, changed = changed_slices.keys, changed_slices.keys.count
    if step.requested_days is not None:
        keys = add_requested_keys(context, task, keys, step.requested_days, expressions_by_input)
    try:
        start_note = f"; {reasons.describe_start(base, run_context.spec.branch)}" if step.has_detached_base else ""
        why = (
            step.reason
            if step.requested_days is not None
            else describe_slices(changed_slices.changes, changed, base.slices) + start_note
        )
        analysis = PlanAnalysis(columns=base.columns)
        if not keys.count and step.has_detached_base:
            return _finish_step(
                run_context, task, step, inputs, analysis, _make_unchanged_result(head, base), (), why_whole
            )
        if not keys.count:
            _record_result(run_context, task, step, inputs, analysis, _make_unchanged_result(head, base), why_whole)
            return StepResult(task.table, "skip", "skipped", f"{step.reason}; no slice differs")
        slice_count = base.slices
        if is_most_slices(changed, slice_count):
            slice_count = count_slices_to_read(
                task, inputs, base, run_context.facts, *_count_input_slices(context, expressions_by_input)
            )
            why = (
                describe_slices(changed_slices.changes, changed, slice_count) + start_note
                if step.requested_days is None
                else why
            )
        if is_most_slices(changed, slice_count):  # for requested days the planner has decided this before
            return _compute_full(
                run_context, task, replace(step, action="full", reason=f"{why}: that is most of them"), inputs, context
            )
        frames = {table: context.session.table(context.identifier(table)) for table in task.input_tables}
        frames |= {
            table: restrict_to_slices(frames[table], keys.with_earlier(lookback_of(task, table)), key_expressions)
            for table, key_expressions in expressions_by_input.items()
        }
        run_context.raise_if_cancelled()
        frame = restrict_to_slices(
            build_frame(task, frames, context.session, run_context.root), keys, list_slice_columns(task)
        )
        refresh = replace_slices(context, task, frame, keys, head, base.tally, base.slices)
        return _finish_step(run_context, task, replace(step, reason=why), inputs, analysis, refresh, (), why_whole)
    finally:
        release_keys(keys)


def _count_input_slices(
    context: TaskContext, expressions_by_input: "Mapping[TableName, tuple[str, ...]]"
) -> "Iterator[int]":
    """Yield the number of slices of each input whose slices are given by expressions, not by plain columns."""
    for table, texts in expressions_by_input.items():
        if not all(text.strip("`").isidentifier() for text in texts):
            rows = context.session.table(context.identifier(table))
            yield rows.selectExpr(*(f"({text})" for text in texts)).distinct().count()


def _find_slice_expressions(
    run_context: "RunContext", task: "Task", inputs: "Mapping[TableName, TableVersion]"
) -> "dict[TableName, tuple[str, ...]]":
    """Return the expressions that give the slice of a row, for each input that has slices."""
    expressions_by_table = {
        table: slice_expressions(task, table, run_context.facts.columns(table, inputs[table]))
        for table in task.input_tables
    }
    return {
        table: key_expressions for table, key_expressions in expressions_by_table.items() if key_expressions is not None
    }


def _build_and_follow(
    run_context: "RunContext", task: "Task", inputs: "Mapping[TableName, TableVersion]", context: TaskContext
) -> "tuple[DataFrame, PlanAnalysis, str]":
    """Return a task's frame over whole inputs, its analysis, and why computing only changes is unsafe; "" if it is."""
    identifiers = {table: context.identifier(table) for table in task.input_tables}
    if not (task.options.by or task.options.rowwise):
        return *_build_analysed_frame(run_context, task, context, identifiers), ""
    with observe_executions(context.session) as executions:
        frame, analysis = _build_analysed_frame(run_context, task, context, identifiers)
    check_analysis(task, analysis)
    why = _explain_unaligned(run_context, task, inputs, context, frame) if task.options.by else None
    if why is None and executions.happened and task.function is not None:
        why = "it computes something while it is called, such as count() or collect()"
    return frame, analysis, why or ""


def _explain_unaligned(
    run_context: "RunContext",
    task: "Task",
    inputs: "Mapping[TableName, TableVersion]",
    context: TaskContext,
    frame: "DataFrame",
) -> str | None:
    """Return why the plan doesn't show that slices are independent; refuse a task whose slices are not."""
    from runnel.run.analysis.slice_alignment import SlicedInput, check_slice_alignment

    sliced_inputs = {}
    for table, texts in _find_slice_expressions(run_context, task, inputs).items():
        name = context.identifier(table)
        sliced_inputs[name.replace("`", "")] = SlicedInput(context.session.table(name), texts, lookback_of(task, table))
    return check_slice_alignment(task, frame, sliced_inputs)


def _warn_full_computation(task: "Task", why: str) -> tuple[str, ...]:
    """Return the warning that a task is always computed in full, and what to do about it."""
    reason = full_computation_reason(task, why)
    if reason is None:
        return ()
    if task.options.by:
        fix = "if each slice is made of its own rows alone, write trust_by=True"
    else:
        fix = "return a frame that is made without looking at rows"
    return (f"is computed in full whenever an input changes, because {reason}; {fix}",)


def _make_unchanged_result(head: TableVersion, base: TaskResult) -> RefreshResult:
    """Return the result for a table that stays as it is."""
    tally = None if base.tally is None else ContentTally(*base.tally)
    return RefreshResult(head, base.rows, tally, base.quarantine, slice_count=base.slices)


def _compute_rows(
    run_context: "RunContext",
    task: "Task",
    step: "PlanStep",
    inputs: "Mapping[TableName, TableVersion]",
    context: TaskContext,
) -> StepResult:
    """Compute only the rows that were added to and removed from the inputs."""
    head = _find_start_version(run_context, task, step)
    assert step.base is not None and head is not None
    why_whole = step.base.full_reason
    if why_whole is None:
        why_whole = _build_and_follow(run_context, task, inputs, context)[2]
    if reason := full_computation_reason(task, why_whole):
        return _compute_full(run_context, task, replace(step, action="full", reason=reason), inputs, context)
    with open_changed_inputs(run_context, task, step, inputs, context) as (added_identifiers, removed_identifiers):
        added_rows, analysis = _build_analysed_frame(run_context, task, context, added_identifiers)
        warnings = check_analysis(task, analysis)
        removed_rows = (
            _build_analysed_frame(run_context, task, context, removed_identifiers)[0]
            if removed_identifiers is not None
            else None
        )
        if removed_rows is not None and not task.options.key and analysis.nondeterministic:
            raise SchemaMismatch(
                task, f"it uses {join_names(analysis.nondeterministic)}, which may differ whenever it is computed"
            )
        run_context.raise_if_cancelled()
        refresh = apply_row_changes(context, task, added_rows, removed_rows, head, step.base.tally)
    return _finish_step(run_context, task, step, inputs, analysis, refresh, warnings, why_whole)


def _build_analysed_frame(
    run_context: "RunContext", task: "Task", context: TaskContext, identifiers: "Mapping[TableName, str]"
) -> "tuple[DataFrame, PlanAnalysis]":
    frames = {table: context.session.table(name) for table, name in identifiers.items()}
    frame = build_frame(task, frames, context.session, run_context.root)
    return frame, analyse_plan(frame, {name.replace("`", ""): table for table, name in identifiers.items()})


def _uses_no_gained_column(
    run_context: "RunContext",
    step: "PlanStep",
    inputs: "Mapping[TableName, TableVersion]",
    analysis: PlanAnalysis,
) -> bool:
    """Tell whether a task uses none of the columns that its inputs gained."""
    assert step.base is not None
    base_inputs = step.base.inputs
    change_sizes = {
        table: run_context.facts.change_size(table, base_inputs[table], inputs[table]) for table in step.changed
    }
    gained_columns = {table: frozenset(change_size.columns_added) for table, change_size in change_sizes.items()}
    return uses_same_columns(step.base.columns, analysis, gained_columns)


def _finish_step(
    run_context: "RunContext",
    task: "Task",
    step: "PlanStep",
    inputs: "Mapping[TableName, TableVersion]",
    analysis: PlanAnalysis,
    refresh: RefreshResult,
    warnings: tuple[str, ...],
    why_whole: str,
) -> StepResult:
    start_version = _find_start_version(run_context, task, step)
    if refresh.head != start_version:
        with measure_phase("write"):
            check_descent(
                run_context.store,
                start_version.location if start_version else None,
                refresh.head.location,
                run_context.spec.run,
            )
    result = _record_result(run_context, task, step, inputs, analysis, refresh, why_whole)
    return StepResult(
        task.table,
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
    run_context: "RunContext",
    task: "Task",
    step: "PlanStep",
    inputs: "Mapping[TableName, TableVersion]",
    analysis: PlanAnalysis,
    refresh: RefreshResult,
    why_whole: str | None,
) -> TaskResult:
    """Record the result under its key, so that it can be reused even if the run fails."""
    assert step.key is not None
    run_context.step_threads.raise_if_abandoned(task.table)
    result = TaskResult(
        table=task.table,
        key=step.key,
        head=refresh.head,
        code=run_context.fingerprints(task).to_json(),
        inputs=dict(inputs),
        run=run_context.spec.run,
        branch=run_context.spec.branch,
        made_at=format_time(run_context.spec.started_at),
        rows=refresh.rows,
        quarantine=refresh.quarantine,
        columns=analysis.columns,
        tally=refresh.tally,
        slices=refresh.slice_count,
        extends=refresh.extended_content,
        full_reason=why_whole,
        provenance=build_provenance(run_context, task, step, refresh),
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
