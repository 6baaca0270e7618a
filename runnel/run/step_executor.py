"""Run the steps of a plan: independent ones in parallel, each as soon as its inputs are done.

A failed step blocks only the steps that depend on it; all others are finished, so that a repeated run reuses their
results.
"""

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.errors import Cancelled, RunnelError, find_disk_full
from runnel.names import TableName
from runnel.phase_timer import record_phases
from runnel.plan.steps import PlanStep
from runnel.run.metrics.step_timing import StepTimings
from runnel.run.results.run_result import Event, StepResult
from runnel.run.run_context import RunContext
from runnel.run.step import run_step
from runnel.run.step_threads import GRACE_SECONDS, INTERRUPT_SECONDS
from runnel.thread_interrupt import Interrupted

if TYPE_CHECKING:
    from runnel.model.table_version import TableVersion
    from runnel.spark.executors.job_watch import StarvationWatch

_BRIEF_SECONDS = 1.0  # steps that end sooner need no progress reports
_CHECK_SECONDS = 2.0  # between two looks at the executors of a cluster


class StepExecutor:
    """Run the steps of one plan in threads."""

    def __init__(self, run_context: RunContext, steps: Sequence[PlanStep]) -> None:
        self.run_context = run_context
        self.steps = {step.table: step for step in steps}
        self.results: dict[TableName, StepResult] = {}
        self._finished: queue.Queue[StepResult] = queue.Queue()
        self._threads: dict[TableName, threading.Thread] = {}
        self._dependencies = {step.table: self._find_dependencies(step) for step in steps}
        self.timings = StepTimings(self._dependencies)
        self._report_progress_at = time.monotonic() + _BRIEF_SECONDS
        self._starvation_watch: StarvationWatch | None = None
        self._check_executors_at = 0.0

    def run_steps(self, *, needs_spark: bool) -> tuple[StepResult, ...]:
        """Run all steps and return their results, in the order of the plan.

        Ctrl-C cancels Spark's jobs, interrupts Python code, waits for the threads, and marks what was not done.
        """
        try:
            self._start_ready_steps(is_spark_ready=not needs_spark)
            if needs_spark:
                requested_at = time.time()
                self.run_context.acquire_slot()  # here, because only the main thread can make Ctrl-C reach Spark
                self.timings.spark_startup = (requested_at, time.time())
                self._start_ready_steps()
            while len(self.results) < len(self.steps):
                result = self._wait_for_result()
                if result.table not in self.results:  # else the step was abandoned
                    self._settle_step(result)
                self._start_ready_steps()
        except BaseException as error:
            self._cancel_steps()
            if not isinstance(error, KeyboardInterrupt | Cancelled):
                raise
        return tuple(self.results[table] for table in self.steps)

    def _wait_for_result(self) -> StepResult:
        while True:
            if (result := self._find_abandoned_step()) is not None:
                return result
            try:
                return self._finished.get(timeout=0.2)  # short, so that Ctrl-C is noticed
            except queue.Empty:
                self.run_context.raise_if_cancelled()
                self._check_executors()
                self._report_spark_progress()

    def _find_abandoned_step(self) -> StepResult | None:
        """Return the failed result of a step that did not end in time; its thread is abandoned."""
        for table in self.run_context.step_threads.list_overdue():
            if table in self._threads and table not in self.results:
                self._abandon_step(table)
                step = self.steps[table]
                error = self.run_context.step_threads.find_error(table)
                return StepResult(table, step.action, "failed", step.reason, error=error)
        return None

    def _abandon_step(self, table: TableName) -> None:
        """Stop waiting for a thread; the slot that it may still use is never used again."""
        self.run_context.step_threads.abandon(table, self._threads[table])
        self.run_context.log.write(
            f"{table} does not stop; Runnel no longer waits for its thread, and does not use its slot again"
        )
        if self.run_context.slot_lease is not None:
            self.run_context.slot_lease.is_clean = False

    def _start_ready_steps(self, *, is_spark_ready: bool = True) -> None:
        """Start every step that is ready; settle at once those that do nothing, which may make others ready."""
        has_progressed = True
        while has_progressed:
            has_progressed = False
            for table, step in self.steps.items():
                if (
                    table in self.results
                    or table in self._threads
                    or not self._dependencies[table] <= self.results.keys()
                ):
                    continue
                if self._is_blocked(table):
                    self._settle_step(StepResult(table, step.action, "blocked", "a table that it needs has failed"))
                    has_progressed = True
                elif step.action == "skip" and not step.is_expected:
                    self._settle_step(StepResult(table, "skip", "skipped", step.reason))
                    has_progressed = True
                elif len(self._threads) < self.run_context.spec.parallel and (
                    is_spark_ready or step.action == "ingest"
                ):
                    self._start_step(step)

    def _start_step(self, step: PlanStep) -> None:
        inputs: dict[TableName, TableVersion | None] = {}
        if step.table in self.run_context.flow.tasks:
            inputs = {
                table: self.run_context.heads.get(table)
                for table in self.run_context.flow.tasks[step.table].input_tables
            }
        thread = threading.Thread(target=self._run_step, args=(step, inputs), name=f"runnel {step.table}", daemon=True)
        self._threads[step.table] = thread
        self.timings.begin_step()
        thread.start()

    def _run_step(self, step: PlanStep, inputs: "dict[TableName, TableVersion | None]") -> None:
        slot_lease, started = None, time.monotonic()
        with record_phases("plan") as clock:
            try:
                with self.run_context.step_threads.track_thread(step.table):
                    result = run_step(self.run_context, step, inputs)
            except BaseException as error:
                result = self._describe_failure(step, error)
            self.run_context.step_threads.settle(step.table)
            slot_lease, segments = self.run_context.slot_lease, clock.stop()
        self.timings.end_step(step.table)
        self._finished.put(replace(result, seconds=time.monotonic() - started))
        session = slot_lease.session if slot_lease is not None and step.table in self.run_context.flow.tasks else None
        self.timings.record_step(step.table, segments, session, f"{self.run_context.spec.run} {step.table}")

    def _describe_failure(self, step: PlanStep, error: BaseException) -> StepResult:
        from runnel.run.errors.task_errors import format_full_trace, to_task_error

        if self.run_context.cancelled.is_set() or isinstance(error, Cancelled):
            return StepResult(step.table, step.action, "cancelled", "cancelled")
        self.run_context.log.write(f"trace of {step.table}\n{format_full_trace(error)}")
        if (
            isinstance(error, Interrupted)
            and (timeout_error := self.run_context.step_threads.find_error(step.table)) is not None
        ):
            error = timeout_error  # interrupted just after it had left the block that its timeout covers
        task = self.run_context.flow.tasks.get(step.table)
        if task is None and (disk_full_error := find_disk_full(error)) is not None:
            error = disk_full_error
        if not isinstance(error, RunnelError):
            error = (
                to_task_error(error, task, self.run_context.root)
                if task
                else RunnelError("RUN_FAILED", f"`{step.table}`: {error}")
            )
        self.run_context.spec.mask.hide_in_error(error)
        return StepResult(step.table, step.action, "failed", step.reason, error=error)

    def _settle_step(self, result: StepResult) -> None:
        if result.state == "succeeded" and result.head is not None:
            heads = {result.table: result.head}
            task = self.run_context.flow.tasks.get(result.table)
            if result.quarantine is not None and task is not None and task.quarantine_table is not None:
                heads[task.quarantine_table] = result.quarantine
            self.run_context.place_tables(heads)
        self.results[result.table] = result
        self._threads.pop(result.table, None)
        if result.state != "skipped":
            self.run_context.report_event(Event("end", table=result.table, action=result.action, outcome=result))

    def _is_blocked(self, table: TableName) -> bool:
        return any(
            self.results[dependency].state in ("failed", "blocked", "cancelled")
            for dependency in self._dependencies[table]
        )

    def _find_dependencies(self, step: PlanStep) -> set[TableName]:
        """Return the steps to wait for: what it reads, and what its checks compare with."""
        task = self.run_context.flow.tasks.get(step.table)
        return {table for table in (*step.needs, *(task.referenced_tables if task else ())) if table in self.steps}

    def _cancel_steps(self) -> None:
        """Interrupt running steps and wait until no thread uses the slot; abandon those that don't stop."""
        self.run_context.cancelled.set()
        deadline = time.monotonic() + GRACE_SECONDS
        while self._threads and time.monotonic() < deadline:
            for table in list(self._threads):
                self.run_context.interrupt(table)
            while True:
                try:
                    result = self._finished.get(timeout=INTERRUPT_SECONDS)
                except queue.Empty:
                    break
                self.results.setdefault(result.table, result)
                self._threads.pop(result.table, None)
        for table in self._threads:
            self._abandon_step(table)
        for table, step in self.steps.items():
            if table not in self.results:
                self.results[table] = StepResult(table, step.action, "cancelled", "cancelled")

    def _check_executors(self) -> None:
        """Raise if tasks wait for executors of a cluster that gives none."""
        from runnel.spark.executors.job_watch import StarvationWatch

        slot_lease, now = self.run_context.slot_lease, time.monotonic()
        if slot_lease is None or now < self._check_executors_at:
            return
        self._check_executors_at = now + _CHECK_SECONDS
        if self._starvation_watch is None:
            self._starvation_watch = StarvationWatch(slot_lease.session)
        self._starvation_watch.check_executors()

    def _report_spark_progress(self) -> None:
        from runnel.spark.task_progress import read_task_progress

        slot_lease = self.run_context.slot_lease
        if slot_lease is not None and time.monotonic() > self._report_progress_at:
            for table in list(self._threads):
                done, total = read_task_progress(slot_lease.session, f"{self.run_context.spec.run} {table}")
                if total:
                    self.run_context.report_progress(
                        Event("progress", table=table, action=self.steps[table].action, done=done, total=total)
                    )
