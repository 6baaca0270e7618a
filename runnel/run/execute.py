"""Execute a plan: run its steps, publish them as one commit, and record the run."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Cancelled, RunnelError, VersionConflict
from runnel.lake.flow_state import runs
from runnel.lake.history.commits import Commit
from runnel.run.metrics.step_timing import Timeline
from runnel.run.observers import RunEnd, RunObservers
from runnel.run.publish_run import publish_run
from runnel.run.results.run_result import Event, ProgressCallback, RunResult, RunState, StepResult
from runnel.run.run_context import RunContext, RunFacts, RunSpec
from runnel.run.run_log import RunLog
from runnel.run.step_executor import StepExecutor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.declare.model.flow import Flow, Task
    from runnel.lake.store import Store
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.plan.steps import Plan

Publish = Callable[[RunContext, tuple[StepResult, ...]], Commit | None]
"""Publish the steps of a run as a commit."""


def execute_plan(
    spec: RunSpec,
    plan: "Plan",
    store: "Store",
    flow: "Flow",
    facts: RunFacts,
    fingerprints: "Callable[[Task], Fingerprint]",
    spark: "Callable[[], SparkSession]",
    *,
    logs: Path,
    report_progress: ProgressCallback,
    message: str | None = None,
    publish: Publish | None = None,
    observers: RunObservers | None = None,
) -> RunResult:
    """Execute a plan and return the result of the run.

    Raises VersionConflict if another commit changed a table that the run wrote: the caller plans again on the new base
    and reuses the finished results. `publish` replaces the default way to publish the run's commit.
    """
    started, log = time.monotonic(), RunLog(logs, spec.run)
    timeline = Timeline(spec)
    log.write(f"run {spec.run} on {spec.branch} from commit {spec.commit.id}, {len(plan.work)} steps to do")
    publish_steps = publish or (lambda run_context, steps: publish_run(run_context, steps, message))
    run_observers = observers or RunObservers()
    run_context = RunContext(
        spec, store, flow, facts, fingerprints, spark, _combine_reporters(report_progress, run_observers), log
    )
    tables = {"tables": [str(step.table) for step in plan.work]}
    code = spec.basis.code if spec.basis else None
    runs.start(store.db, spec.run, spec.branch, store.author, tables, pin=spec.pin, code=code)
    run_observers.on_start(run_context)
    executor = StepExecutor(run_context, plan.steps)
    run_error: RunnelError | None = None
    steps: tuple[StepResult, ...] = ()
    state: RunState = "failed"
    commit: Commit | None = None
    try:
        with timeline.measure("steps"):
            steps = executor.run_steps(needs_spark=plan.jvm)
        timeline.split_off("spark", "steps", executor.timings.spark_seconds)
        state = _decide_state(steps)
        if state == "succeeded" and spec.verify:
            from runnel.run.verify.verify import verify_steps

            with timeline.measure("verify"):
                steps = verify_steps(run_context, steps)
            state = _decide_state(steps)
        if state == "succeeded":
            with timeline.measure("publish"), _ignore_interrupts():
                commit = publish_steps(run_context, steps)
            state = "succeeded" if commit else "nothing"
    except VersionConflict as error:
        run_error = error
        log.write(f"planned again: {error.what}")
        report_progress(Event("note", f"{error.what}; planning again"))
        raise
    except RunnelError as error:
        run_error, state = error, "cancelled" if isinstance(error, Cancelled) else "failed"
        log.write(str(error))
        raise
    finally:
        ended_at = time.time()
        run_context.close()
        steps = executor.timings.attach_to_all(steps)
        with suppress(RunnelError):  # the first error is reported; the run then shows as lost
            detail = {"steps": [step.json() for step in steps], **(spec.basis.describe_run() if spec.basis else {})}
            detail["timeline"] = dict(timeline)
            runs.finish(store.db, spec.run, state, commit.id if commit else None, detail)
        commit_id = commit.id if commit else None
        is_replanned, timings = isinstance(run_error, VersionConflict), executor.timings.recorded_timings
        run_observers.on_end(RunEnd(state, commit_id, steps, run_error, is_replanned, timeline, timings, ended_at))
    seconds = time.monotonic() - started
    log.write(f"{state}, commit {commit.id if commit else 'none'}, {seconds:.3f} s")
    return RunResult(spec.run, state, spec.branch, commit_id, seconds, steps, str(log.path), timeline=dict(timeline))


def _combine_reporters(report_progress: ProgressCallback, run_observers: RunObservers) -> ProgressCallback:
    def report_event(event: Event) -> None:
        report_progress(event)
        run_observers.on_event(event)

    return report_event


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C while publishing, so that a published run is not reported as cancelled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler or signal.default_int_handler)


def _decide_state(steps: tuple[StepResult, ...]) -> RunState:
    for step in steps:
        if isinstance(step.error, VersionConflict):
            raise step.error  # rows were erased meanwhile: plan again from the new versions
    if any(step.state == "cancelled" for step in steps):
        return "cancelled"
    return "failed" if any(step.state in ("failed", "blocked") for step in steps) else "succeeded"
