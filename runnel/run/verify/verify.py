"""Compare the tables of a run with full computations of their tasks, before anything is published. Only reads.

Tasks that may differ anyway only get a warning: volatile ones, nondeterministic functions, changed references.
"""

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Task
from runnel.errors import Cancelled, RunnelError, join_names
from runnel.lake.flow_state import results
from runnel.plan.slices import is_reference
from runnel.run.analysis.plan_checks import PlanAnalysis, analyse_plan
from runnel.run.checks.row_checks import REJECTING_ACTIONS, failing_sql, list_row_checks
from runnel.run.errors.task_errors import format_full_trace, to_task_error
from runnel.run.results.run_result import Event, StepResult
from runnel.run.task.build_frame import build_frame
from runnel.run.verify.compare_frames import FrameDifferences, compare_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.names import TableName
    from runnel.run.run_context import RunContext

NOT_COMPARED = "not compared"
_TABLE, _FULL = "the table", "the full computation"


def verify_steps(run_context: "RunContext", steps: Iterable[StepResult]) -> tuple[StepResult, ...]:
    """Return the results with the outcome of the comparison; a step whose table differs has failed.

    A table that this run computed in full is not computed again.
    """
    verified_steps: list[StepResult] = []
    for step in steps:
        task = run_context.flow.tasks.get(step.table)
        is_stopped = any(verified_step.state == "cancelled" for verified_step in verified_steps)
        verified_steps.append(step if task is None or is_stopped else _verify_step(run_context, task, step))
    return tuple(verified_steps)


def _verify_step(run_context: "RunContext", task: Task, step: StepResult) -> StepResult:
    if task.options.volatile:
        return _warn_not_compared(step, "it is volatile")
    if step.action == "full":
        return step
    started = time.monotonic()
    run_context.report_event(Event("start", "comparing with a full computation", task.table, "verify"))
    try:
        run_context.raise_if_cancelled()
        result = _compare_table(run_context, task, step)
    except (KeyboardInterrupt, Cancelled):
        if run_context.slot_lease is not None:
            run_context.slot_lease.is_clean = False  # its jobs may still be running
        return replace(step, state="cancelled", reason="cancelled")
    except Exception as error:
        run_context.log.write(f"trace of verifying {task.table}\n{format_full_trace(error)}")
        task_error = to_task_error(error, task, run_context.root)
        run_context.spec.mask.hide_in_error(task_error)
        result = replace(step, state="failed", error=task_error)
    finally:
        run_context.report_event(Event("end", table=task.table, action="verify"))
    run_context.log.write(f"verified {task.table} in {time.monotonic() - started:.3f} s: {result.verified}")
    return result


def _compare_table(run_context: "RunContext", task: Task, step: StepResult) -> StepResult:
    slot_lease = run_context.acquire_slot()
    session = slot_lease.session
    identifiers = {
        table: f"`{slot_lease.slot.name}`.`{table.layer}`.`{table.name}`" for table in (*task.input_tables, task.table)
    }
    session.sparkContext.setJobGroup(f"{run_context.spec.run} verify {task.table}", f"verify {task.table}", True)
    frames = {table: session.table(identifiers[table]) for table in task.input_tables}
    scheduled_at = run_context.spec.scheduled_at
    frame = build_frame(task, frames, session, run_context.root, scheduled_at=scheduled_at)
    analysis = analyse_plan(frame, {identifiers[table].replace("`", ""): table for table in task.input_tables})
    if analysis.nondeterministic:
        return _warn_not_compared(step, _describe_nondeterminism(analysis))
    frame_differences = compare_frames(
        session.table(identifiers[task.table]), _drop_rejected_rows(frame, task), task.options.key or task.options.by
    )
    if not frame_differences:
        return replace(step, verified=True)
    changed_references = _find_changed_references(run_context, task)
    if changed_references:
        rows = frame_differences.only_left + frame_differences.only_right
        return _warn_not_compared(
            step,
            f"its reference {join_names(map(str, changed_references))} "
            f"changed since it was computed; {rows:,} rows differ",
        )
    _drop_wrong_result(run_context, step)
    return replace(step, state="failed", verified=False, error=_difference_error(task, frame_differences))


def _drop_rejected_rows(frame: "DataFrame", task: Task) -> "DataFrame":
    """Return the rows of a frame that no check drops or quarantines."""
    checks = [failing_sql(check) for check in list_row_checks(task) if check.on_fail in REJECTING_ACTIONS]
    return frame.where(f"NOT ({' OR '.join(checks)})") if checks else frame


def _warn_not_compared(step: StepResult, why: str) -> StepResult:
    return replace(step, warnings=(*step.warnings, f"{NOT_COMPARED}: {why}"))


def _describe_nondeterminism(analysis: PlanAnalysis) -> str:
    return f"it uses {join_names(analysis.nondeterministic)}, which may differ each time it is computed"


def _find_changed_references(run_context: "RunContext", task: Task) -> "list[TableName]":
    """Return the references that changed since some of the table's slices may have been computed."""
    changed_references = []
    for table in task.input_tables:
        if is_reference(task, table):
            used_contents = results.list_used_contents(run_context.store.db, task.table, table)
            if used_contents - {run_context.heads[table].content}:
                changed_references.append(table)
    return changed_references


def _drop_wrong_result(run_context: "RunContext", step: StepResult) -> None:
    """Drop a wrong result of this run, so that no later run reuses it."""
    if step.state == "succeeded" and step.detail.get("run") == run_context.spec.run:
        results.delete(run_context.store.db, step.table, str(step.detail["key"]))


def _difference_error(task: Task, frame_differences: FrameDifferences) -> RunnelError:
    lines = "\n  ".join(frame_differences.describe_lines(_TABLE, _FULL))
    what = f"`{task.table}` differs from a full computation: {lines}"
    fix = f"`runnel run -s {task.table} --full-refresh` computes it in full"
    if task.options.by:
        fix += "; if it differs again later, its slices are not independent: correct by=, by_input= or lookback="
    return RunnelError("RUN_VERIFY_DIFFERS", what, at=str(task.place), fix=fix)
