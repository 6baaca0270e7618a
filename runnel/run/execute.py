"""Execute a plan: run its steps, verify them if requested, and publish them as one commit."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.lake.history.commits import Commit
from runnel.run.publish_run import publish_run
from runnel.run.results.run_result import RunResult, StepResult
from runnel.run.run_context import RunContext, RunResources, RunSpec
from runnel.run.run_recorder import RunRecorder, RunReporting

if TYPE_CHECKING:
    from runnel.plan.steps import Plan

Publish = Callable[[RunContext, tuple[StepResult, ...]], Commit | None]
"""Publish the steps of a run as a commit."""


def execute_plan(
    spec: RunSpec, plan: "Plan", resources: RunResources, reporting: RunReporting, publish: Publish = publish_run
) -> RunResult:
    """Execute a plan and return the result of the run.

    Raises VersionConflict if another commit changed a table that the run wrote: the caller plans again on the new base
    and reuses the finished results. `publish` publishes the run's commit.
    """
    with RunRecorder(spec, plan, resources, reporting) as recorder:
        _run_steps(recorder, needs_spark=plan.jvm)
        if recorder.state == "succeeded" and spec.verify:
            _verify_steps(recorder)
        if recorder.state == "succeeded":
            _publish_steps(recorder, publish)
    return recorder.build_result()


def _run_steps(recorder: RunRecorder, *, needs_spark: bool) -> None:
    with recorder.timeline.measure("steps"):
        steps = recorder.executor.run_steps(needs_spark=needs_spark)
    recorder.timeline.split_off("spark", "steps", recorder.executor.timings.spark_seconds)
    recorder.record_steps(steps)


def _verify_steps(recorder: RunRecorder) -> None:
    """Compare the tables with a full computation."""
    from runnel.run.verify.verify import verify_steps

    with recorder.timeline.measure("verify"):
        steps = verify_steps(recorder.run_context, recorder.steps)
    recorder.record_steps(steps)


def _publish_steps(recorder: RunRecorder, publish: Publish) -> None:
    with recorder.timeline.measure("publish"), _ignore_interrupts():
        commit = publish(recorder.run_context, recorder.steps)
        recorder.record_commit(commit)


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
