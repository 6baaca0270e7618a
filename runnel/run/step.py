"""Run one step of a run: ingest a source, reuse a result, or compute a task.

The action is decided again here, because the inputs are final now.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.lake.flow_state import results
from runnel.model.table_version import TableVersion
from runnel.plan.decisions.task import decide_task
from runnel.plan.steps import PlanStep
from runnel.run.results.run_result import Event, StepResult
from runnel.run.retry import describe_retry, retry_transient
from runnel.run.task.compute import compute_task, describe_provenance
from runnel.run.task_context import TaskRun

if TYPE_CHECKING:
    from runnel.backoff import FailedAttempt
    from runnel.declare.model.flow import Task
    from runnel.names import TableName
    from runnel.run.run_context import RunContext


def run_step(
    run_context: "RunContext", step: PlanStep, inputs: "Mapping[TableName, TableVersion | None]"
) -> StepResult:
    """Run one step and return its result."""
    run_context.raise_if_cancelled()
    if step.table in run_context.flow.sources:
        from runnel.run.sources.file_source import ingest_source

        return ingest_source(run_context, step)
    task = run_context.flow.tasks[step.table]
    if task.options.stream:
        return StepResult(task.table, "skip", "skipped", "a stream, which runs continuously")
    fingerprint = run_context.fingerprints(task)
    spec = run_context.spec
    decided_step = decide_task(
        task, fingerprint, inputs, run_context.facts, branch=spec.branch, full_refresh=spec.full_refresh, days=spec.days
    )
    if decided_step.action == "skip":
        return StepResult(task.table, "skip", "skipped", decided_step.reason)
    if decided_step.action == "reuse":
        if (result := _reuse_result(run_context, task, decided_step)) is not None:
            return result
        decided_step = replace(decided_step, action="full", reason="its known result is gone (retention)")
    existing_inputs = {table: head for table, head in inputs.items() if head is not None}
    return _compute_with_retries(TaskRun(run_context, task, decided_step, existing_inputs))


def _reuse_result(run_context: "RunContext", task: "Task", decided_step: PlanStep) -> StepResult | None:
    """Reuse an existing result; return None if gc has removed it since it was looked up."""
    existing_result = decided_step.existing_result
    assert existing_result is not None
    if not results.mark_used(run_context.store.db, existing_result):
        return None
    detail = describe_provenance(existing_result)
    return StepResult(
        task.table,
        "reuse",
        "succeeded",
        decided_step.reason,
        rows=existing_result.rows,
        head=existing_result.head,
        quarantine=existing_result.quarantine,
        detail=detail,
    )


def _compute_with_retries(task_run: TaskRun) -> StepResult:
    run_context, task, step = task_run.run_context, task_run.task, task_run.step
    run_context.report_event(Event("start", step.reason, task.table, step.action))

    def report_retry(failed_attempt: "FailedAttempt[Exception]") -> None:
        run_context.report_event(Event("retry", describe_retry(failed_attempt), task.table, step.action))

    retries, retry_on = task.options.retries, task.options.retry_on
    return retry_transient(
        lambda: compute_task(task_run), retries, run_context.cancelled, report_retry, retry_on=retry_on
    )
