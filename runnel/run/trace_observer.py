"""Export a run as OpenTelemetry spans: the run, and below it planning, each step with its phases, and publishing."""

import time
from typing import TYPE_CHECKING

from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.run.observers import RunEnd
    from runnel.run.results.run_result import Event, StepResult
    from runnel.run.run_context import RunContext


class TraceObserver:
    """Export the spans of one run after it has ended."""

    def __init__(self) -> None:
        self._run_context: RunContext | None = None
        self._started_at = 0.0

    def on_start(self, run_context: "RunContext") -> None:
        """Note when the run began."""
        self._run_context, self._started_at = run_context, time.time()

    def on_event(self, event: "Event") -> None:
        """Do nothing: spans are exported at the end."""

    def on_end(self, run_end: "RunEnd") -> None:
        """Export the span of the run and everything below it."""
        run_context, now = self._run_context, time.time()
        assert run_context is not None
        spec = run_context.spec
        requested_at = (spec.planned_at or spec.started_at).timestamp()
        error = run_end.error.what if run_end.error else None
        if error is None and run_end.state == "failed":
            error = next((step.error.what for step in run_end.steps if step.error is not None), "failed")
        if spec.queued_seconds and "again" not in run_end.timeline:
            tracing.record_span("queue", requested_at - spec.queued_seconds, requested_at, spec.trace, run=spec.run)
        state = "planned again" if run_end.is_replanned else run_end.state
        attributes = {"run": spec.run, "branch": spec.branch, "cause": spec.cause, "state": state}
        run_trace = tracing.record_span(
            "run", requested_at, now, spec.trace, error=error, **attributes, commit=run_end.commit
        )
        tracing.record_span("plan", requested_at, self._started_at, run_trace)
        for step in run_end.steps:
            self._record_step(step, run_end, run_trace)
        if "publish" in run_end.timeline:
            published_at = run_end.ended_at or now
            tracing.record_span(
                "publish", published_at - run_end.timeline["publish"], published_at, run_trace, commit=run_end.commit
            )

    def _record_step(self, step: "StepResult", run_end: "RunEnd", run_trace: str | None) -> None:
        timing = run_end.timings.get(step.table)
        if timing is None or not timing.segments:
            return
        spark = step.spark or {}
        step_trace = tracing.record_span(
            f"step {step.table}",
            timing.segments[0].start,
            timing.segments[-1].end,
            run_trace,
            error=step.error.what if step.error else None,
            table=str(step.table),
            action=step.action,
            state=step.state,
            rows=step.rows,
            tasks=spark.get("tasks"),
            spill_disk_bytes=spark.get("spill_disk_bytes"),
        )
        tracing.record_phases(timing.segments, step_trace)
