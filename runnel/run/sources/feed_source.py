"""Ingest the changes of a feed into its table, or reuse a version that already has the same rows."""

from typing import TYPE_CHECKING

from runnel.declare.model.flow import quarantine_table_of
from runnel.model.table_version import TableVersion
from runnel.phase_timer import measure_phase
from runnel.plan.reasons import NOTHING_NEW
from runnel.run.results.run_result import Event, StepResult
from runnel.run.retry import retry_transient
from runnel.run.sources.file_source import build_warnings

if TYPE_CHECKING:
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

    def report_retry(attempt_number: int, pause: float, error: BaseException) -> None:
        text = f"attempt {attempt_number} failed ({str(error).splitlines()[0][:200]}); retrying in {pause:.0f} s"
        run_context.report_event(Event("retry", text, step.table, "ingest"))

    return retry_transient(
        lambda: _read_feed(run_context, step, feed_changes), _RETRIES, run_context.cancelled, report_retry
    )


@measure_phase("read")
def _read_feed(run_context: "RunContext", step: "PlanStep", feed_changes: "FeedChanges") -> StepResult:
    from runnel.connect.feed.ingest_feed import ingest_feed
    from runnel.connect.feed.state import read_feed_state
    from runnel.connect.feed_registry import open_feed
    from runnel.connect.ingest.ingest import IngestTarget

    source = run_context.flow.sources[step.table]
    position = read_feed_state(run_context.facts.processed_files(step.table))
    feed = open_feed(
        source, run_context.root, spark=lambda: run_context.acquire_slot().session, store=run_context.store
    )
    assert feed is not None
    head, quarantine_head = run_context.heads.get(step.table), run_context.heads.get(quarantine_table_of(step.table))
    target = IngestTarget(
        run_context.store,
        source,
        head.location if head else None,
        quarantine_head.location if quarantine_head else None,
        run_context.spec.run,
        run_context.make_read_reporter(step.table),
    )
    ingested = ingest_feed(target, feed, position, feed_changes, head.content if head else None)
    is_same = head is not None and (ingested.location == head.location or ingested.content == head.content)
    if (
        is_same
        and read_feed_state({processed_file.path: processed_file for processed_file in ingested.processed_files})
        == position
    ):
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
        warnings=(
            *build_warnings(ingested.dropped, ingested.new_columns, bool(ingested.quarantine)),
            *ingested.warnings,
        ),
    )
