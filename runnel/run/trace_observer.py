"""Follow a run and tell OpenTelemetry: a span for the run, below it planning, each step with its phases, publishing."""

import time
from typing import TYPE_CHECKING

from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.run.observers import Ended
    from runnel.run.results.run_result import Done, Event
    from runnel.run.run_context import Work


class TraceWitness:
    """Tells of one run, when it has ended: spans may be told of afterwards."""

    def __init__(self) -> None:
        self._work: Work | None = None
        self._begun = 0.0

    def begin(self, work: "Work") -> None:
        """Take down when it began."""
        self._work, self._begun = work, time.time()

    def see(self, event: "Event") -> None:
        """Do nothing: what a step did is known at the end."""

    def end(self, ended: "Ended") -> None:
        """Tell of the run and of everything below it."""
        work, now = self._work, time.time()
        assert work is not None
        order = work.order
        asked = (order.planned_at or order.started_at).timestamp()
        error = ended.error.what if ended.error else None
        if error is None and ended.state == "failed":
            error = next((step.error.what for step in ended.steps if step.error is not None), "failed")
        if order.queued_seconds and "again" not in ended.timeline:
            tracing.past("queue", asked - order.queued_seconds, asked, order.trace, run=order.run)
        state = "planned again" if ended.is_moved else ended.state
        told = {"run": order.run, "branch": order.branch, "cause": order.cause, "state": state}
        above = tracing.past("run", asked, now, order.trace, error=error, **told, commit=ended.commit)
        tracing.past("plan", asked, self._begun, above)
        for step in ended.steps:
            self._step(step, ended, above)
        if "publish" in ended.timeline:
            until = ended.ended_at or now
            tracing.past("publish", until - ended.timeline["publish"], until, above, commit=ended.commit)

    def _step(self, step: "Done", ended: "Ended", above: str | None) -> None:
        account = ended.accounts.get(step.table)
        if account is None or not account.segments:
            return
        spark = step.spark or {}
        below = tracing.past(
            f"step {step.table}",
            account.segments[0].start,
            account.segments[-1].end,
            above,
            error=step.error.what if step.error else None,
            table=str(step.table),
            action=step.action,
            state=step.state,
            rows=step.rows,
            tasks=spark.get("tasks"),
            spill_disk_bytes=spark.get("spill_disk_bytes"),
        )
        tracing.phases(account.segments, below)
