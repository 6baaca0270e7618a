"""Record a run while its plan is executed: its row in the catalog, its log, its timeline, and what observers see."""

import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from runnel.errors import Cancelled, RunnelError, VersionConflict, plural
from runnel.lake.flow_state import runs
from runnel.run.metrics.step_timing import Timeline
from runnel.run.observers import RunEnd, RunObservers
from runnel.run.results.run_result import Event, ProgressCallback, RunResult, RunState, StepResult
from runnel.run.run_context import RunContext, RunResources, RunSpec
from runnel.run.run_log import RunLog
from runnel.run.step_executor import StepExecutor

if TYPE_CHECKING:
    from types import TracebackType

    from runnel.lake.history.commits import Commit
    from runnel.plan.steps import Plan


@dataclass(frozen=True)
class RunReporting:
    """Where a run reports to: the folder of its log, a callback for progress, and observers."""

    logs: Path
    report_progress: ProgressCallback
    observers: RunObservers = field(default_factory=RunObservers)

    def report_event(self, event: Event) -> None:
        """Report an event as progress and to the observers."""
        self.report_progress(event)
        self.observers.on_event(event)


class RunRecorder:
    """Record one run: its start when the block begins, and its end, whether it succeeds or fails, when it ends.

    The block passes in what happens: the results of steps with `record_steps`, the commit with `record_commit`.
    """

    def __init__(self, spec: RunSpec, plan: "Plan", resources: RunResources, reporting: RunReporting) -> None:
        self.spec = spec
        self.state: RunState = "failed"
        self.steps: tuple[StepResult, ...] = ()
        self.commit_id: str | None = None
        self._started = time.monotonic()
        self._plan = plan
        self._reporting = reporting
        self._log = RunLog(reporting.logs, spec.run, spec.mask)
        self.timeline = Timeline(spec)
        self.run_context = RunContext(spec, resources, reporting.report_event, self._log)

    @cached_property
    def executor(self) -> StepExecutor:
        """Return the executor of the steps; their timings count from its first use."""
        return StepExecutor(self.run_context, self._plan.steps)

    def __enter__(self) -> Self:
        spec, store = self.spec, self.run_context.store
        self._log.write(
            f"run {spec.run} on {spec.branch} from commit {spec.commit.id}, "
            f"{plural(len(self._plan.work), 'step')} to do"
        )
        tables = {"tables": [str(step.table) for step in self._plan.work]}
        leases, code = runs.RunLeases(spec.pin), spec.basis.code if spec.basis else None
        runs.start(store.db, spec.run, spec.branch, store.author, tables, leases=leases, code=code)
        self._reporting.observers.on_start(self.run_context)
        return self

    def record_steps(self, steps: tuple[StepResult, ...]) -> None:
        """Record the results of the steps. Raises VersionConflict if a step needs the run to be planned again."""
        self.steps = steps
        self.state = _decide_state(steps)

    def record_commit(self, commit: "Commit | None") -> None:
        """Record the commit of a run that succeeded; None if nothing changed."""
        self.commit_id = commit.id if commit else None
        self.state = "succeeded" if commit else "nothing"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: "TracebackType | None"
    ) -> None:
        try:
            self._record_error(error)
        finally:
            self._record_end(error if isinstance(error, RunnelError) else None)

    def _record_error(self, error: BaseException | None) -> None:
        if isinstance(error, VersionConflict):
            self.state = "failed"  # unless the run is planned again
            self._log.write(f"planned again: {error.what}")
            self._reporting.report_progress(Event("note", f"{error.what}; planning again"))
        elif isinstance(error, RunnelError):
            self.state = "cancelled" if isinstance(error, Cancelled) else "failed"
            self.spec.mask.hide_in_error(error)
            self._log.write(str(error))

    def _record_end(self, error: RunnelError | None) -> None:
        """Release what the run holds, write its end to the catalog, and notify the observers."""
        ended_at, spec, timings = time.time(), self.spec, self.executor.timings
        self.run_context.close()
        self.steps = timings.attach_to_all(self.steps)
        with suppress(RunnelError):  # the first error is reported; the run then shows as lost
            detail = {
                "steps": [step.json() for step in self.steps],
                **(spec.basis.describe_run() if spec.basis else {}),
            }
            detail["timeline"] = dict(self.timeline)
            runs.finish(self.run_context.store.db, spec.run, self.state, self.commit_id, detail)
        run_end = RunEnd(
            self.state,
            self.commit_id,
            self.steps,
            error,
            is_replanned=isinstance(error, VersionConflict),
            timeline=self.timeline,
            timings=timings.recorded_timings,
            ended_at=ended_at,
        )
        self._reporting.observers.on_end(run_end)

    def build_result(self) -> RunResult:
        """Write the outcome of the run to its log and return it, after the block."""
        seconds = time.monotonic() - self._started
        self._log.write(f"{self.state}, commit {self.commit_id or 'none'}, {seconds:.3f} s")
        return RunResult(
            self.spec.run,
            self.state,
            self.spec.branch,
            self.commit_id,
            seconds,
            self.steps,
            str(self._log.path),
            timeline=dict(self.timeline),
        )


def _decide_state(steps: tuple[StepResult, ...]) -> RunState:
    for step in steps:
        if isinstance(step.error, VersionConflict):
            raise step.error  # rows were erased meanwhile: plan again from the new versions
    if any(step.state == "cancelled" for step in steps):
        return "cancelled"
    return "failed" if any(step.state in ("failed", "blocked") for step in steps) else "succeeded"
