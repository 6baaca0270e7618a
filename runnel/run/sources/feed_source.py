"""Ingest the changes of a feed into its table, or reuse a version that already has the same rows."""

from typing import TYPE_CHECKING

from runnel.model.table_version import TableVersion
from runnel.phase_timer import measure_phase
from runnel.plan.reasons import NOTHING_NEW
from runnel.run.results.run_result import Event, StepResult
from runnel.run.retry import describe_retry, retry_transient
from runnel.run.sources.source_ingest import build_row_warnings, make_step_ingest

if TYPE_CHECKING:
    from runnel.backoff import FailedAttempt
    from runnel.connect.feed.protocol import FeedChanges
    from runnel.plan.steps import PlanStep
    from runnel.run.run_context import RunContext

_RETRIES = 2


def ingest_feed_source(run_context: "RunContext", step: "PlanStep") -> StepResult:
    """Read the changes of a source other than files, and stage the next version of its table."""
    feed_changes = run_context.facts.feed_changes(step.table)
    if feed_changes is None or feed_changes.is_empty:
        return StepResult(step.table, "skip", "skipped", step.reason)
    run_context.report_event(Event("start", step.reason, step.table, "ingest"))

    def report_retry(failed_attempt: "FailedAttempt[Exception]") -> None:
        run_context.report_event(Event("retry", describe_retry(failed_attempt), step.table, "ingest"))

    return retry_transient(
        lambda: _read_feed(run_context, step, feed_changes), _RETRIES, run_context.cancelled, report_retry
    )


@measure_phase("read")
def _read_feed(run_context: "RunContext", step: "PlanStep", feed_changes: "FeedChanges") -> StepResult:
    from runnel.connect.feed.state import read_feed_state

    head, position = run_context.heads.get(step.table), run_context.facts.processed_files(step.table)
    ingested = make_step_ingest(run_context, step.table).stage(feed_changes, run_context.heads, lambda: position)
    is_same = head is not None and (ingested.location == head.location or ingested.content == head.content)
    new_position = {processed_file.path: processed_file for processed_file in ingested.processed_files}
    if is_same and read_feed_state(new_position) == read_feed_state(position):
        return StepResult(step.table, "skip", "skipped", NOTHING_NEW)
    return StepResult(
        step.table,
        "ingest",
        "succeeded",
        step.reason,
        rows=ingested.rows,
        head=head if is_same else TableVersion(ingested.location, ingested.content),
        quarantine=TableVersion(*ingested.quarantine) if ingested.quarantine else None,
        set_aside=ingested.dropped,
        processed_files=ingested.processed_files,
        detail={"run": run_context.spec.run},
        warnings=(*build_row_warnings(ingested), *ingested.warnings),
        place=ingested.place if run_context.has_work_places else None,
    )
