"""Do the steps of a plan: independent ones side by side, each as soon as what it needs is done.

A step that fails holds up only what needs it; everything else is finished, so that its result is known when the run
is repeated.
"""

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.errors import Cancelled, RunnelError, no_room
from runnel.names import TableName
from runnel.phase_timer import kept
from runnel.plan.steps import Step
from runnel.run.metrics.step_timing import Accounts
from runnel.run.results.run_result import Done, Event
from runnel.run.run_context import Work
from runnel.run.step import do
from runnel.run.step_threads import GRACE_SECONDS, INTERRUPT_SECONDS
from runnel.thread_interrupt import Interrupted

if TYPE_CHECKING:
    from runnel.plan.facts import Head

_BRIEF_SECONDS = 1.0  # what has ended by then needs nobody to watch how far Spark is


class Engine:
    """One pass over the steps of a plan."""

    def __init__(self, work: Work, steps: Sequence[Step]) -> None:
        self.work = work
        self.steps = {step.table: step for step in steps}
        self.done: dict[TableName, Done] = {}
        self._ended: queue.Queue[Done] = queue.Queue()
        self._threads: dict[TableName, threading.Thread] = {}
        self._needs = {step.table: self._waits_for(step) for step in steps}
        self.accounts = Accounts(self._needs)
        self._watch_at = time.monotonic() + _BRIEF_SECONDS

    def run(self, *, needs_spark: bool) -> tuple[Done, ...]:
        """Do all steps and return what became of them, in the order of the plan.

        Ctrl-C cancels Spark's jobs, interrupts Python code, waits for the threads, and marks what was not done.
        """
        try:
            self._start_ready(spark_is_here=not needs_spark)
            if needs_spark:
                asked_at = time.time()
                self.work.borrow()  # here, because only the main thread can make Ctrl-C reach Spark
                self.accounts.spark = (asked_at, time.time())
                self._start_ready()
            while len(self.done) < len(self.steps):
                done = self._next()
                if done.table not in self.done:  # else nobody waited for it any more
                    self._settle(done)
                self._start_ready()
        except BaseException as error:
            self._cancel(error)
            if not isinstance(error, KeyboardInterrupt | Cancelled):
                raise
        return tuple(self.done[table] for table in self.steps)

    def _next(self) -> Done:
        while True:
            if (done := self._abandoned_step()) is not None:
                return done
            try:
                return self._ended.get(timeout=0.2)  # short, so that Ctrl-C is noticed
            except queue.Empty:
                self.work.check()
                self._watch_spark()

    def _abandoned_step(self) -> Done | None:
        """Return a step as failed that did not end although its time is up; its thread is left to itself."""
        for table in self.work.steps.overdue():
            if table in self._threads and table not in self.done:
                self._abandon(table)
                step = self.steps[table]
                error = self.work.steps.error_of(table)
                return Done(table, step.action, "failed", step.reason, error=error)
        return None

    def _abandon(self, table: TableName) -> None:
        """Wait no longer for a thread; the slot that it may still use is never used again."""
        self.work.steps.abandon(table, self._threads[table])
        self.work.log.write(f"{table} does not stop; its thread is left behind, and its slot is not used again")
        if self.work.loan is not None:
            self.work.loan.is_clean = False

    def _start_ready(self, *, spark_is_here: bool = True) -> None:
        """Start every step that can go now; those that do nothing are done at once, which may free others."""
        progress = True
        while progress:
            progress = False
            for table, step in self.steps.items():
                if table in self.done or table in self._threads or not self._needs[table] <= self.done.keys():
                    continue
                if self._is_blocked(table):
                    self._settle(Done(table, step.action, "blocked", "what it needs has failed"))
                    progress = True
                elif step.action == "skip" and not step.is_expected:
                    self._settle(Done(table, "skip", "skipped", step.reason))
                    progress = True
                elif len(self._threads) < self.work.order.parallel and (spark_is_here or step.action == "ingest"):
                    self._start(step)

    def _start(self, step: Step) -> None:
        inputs: dict[TableName, Head | None] = {}
        if step.table in self.work.flow.tasks:
            inputs = {table: self.work.heads.get(table) for table in self.work.flow.tasks[step.table].reads}
        thread = threading.Thread(target=self._do, args=(step, inputs), name=f"runnel {step.table}", daemon=True)
        self._threads[step.table] = thread
        self.accounts.begin()
        thread.start()

    def _do(self, step: Step, inputs: "dict[TableName, Head | None]") -> None:
        loan, started = None, time.monotonic()
        with kept("plan") as clock:
            try:
                with self.work.steps.entered(step.table):
                    done = do(self.work, step, inputs)
            except BaseException as error:
                done = self._failure(step, error)
            self.work.steps.settle(step.table)
            loan, did = self.work.loan, clock.stop()
        self.accounts.end(step.table)
        self._ended.put(replace(done, seconds=time.monotonic() - started))
        session = loan.session if loan is not None and step.table in self.work.flow.tasks else None
        self.accounts.add(step.table, did, session, f"{self.work.order.run} {step.table}")

    def _failure(self, step: Step, error: BaseException) -> Done:
        from runnel.run.errors.task_errors import full_trace, tell

        if self.work.cancelled.is_set() or isinstance(error, Cancelled):
            return Done(step.table, step.action, "cancelled", "cancelled")
        self.work.log.write(f"trace of {step.table}\n{full_trace(error)}")
        if isinstance(error, Interrupted) and (late := self.work.steps.error_of(step.table)) is not None:
            error = late  # it was interrupted when it had just left the part that its timeout is about
        task = self.work.flow.tasks.get(step.table)
        if task is None and (full := no_room(error)) is not None:
            error = full
        if not isinstance(error, RunnelError):
            error = tell(error, task, self.work.root) if task else RunnelError("RUN_FAILED", f"`{step.table}`: {error}")
        return Done(step.table, step.action, "failed", step.reason, error=error)

    def _settle(self, done: Done) -> None:
        if done.state == "succeeded" and done.head is not None:
            heads = {done.table: done.head}
            task = self.work.flow.tasks.get(done.table)
            if done.aside is not None and task is not None and task.quarantine is not None:
                heads[task.quarantine] = done.aside
            self.work.place(heads)
        self.done[done.table] = done
        self._threads.pop(done.table, None)
        if done.state != "skipped":
            self.work.tell(Event("end", table=done.table, action=done.action, outcome=done))

    def _is_blocked(self, table: TableName) -> bool:
        return any(self.done[need].state in ("failed", "blocked", "cancelled") for need in self._needs[table])

    def _waits_for(self, step: Step) -> set[TableName]:
        """Return the steps to wait for: what it reads, and what its checks compare with."""
        task = self.work.flow.tasks.get(step.table)
        return {table for table in (*step.needs, *(task.refers if task else ())) if table in self.steps}

    def _cancel(self, error: BaseException) -> None:
        """Stop what is under way, and wait until no thread is left in the slot; one that does not stop is abandoned."""
        self.work.cancelled.set()
        until = time.monotonic() + GRACE_SECONDS
        while self._threads and time.monotonic() < until:
            for table in list(self._threads):
                self.work.interrupt(table)
            while True:
                try:
                    done = self._ended.get(timeout=INTERRUPT_SECONDS)
                except queue.Empty:
                    break
                self.done.setdefault(done.table, done)
                self._threads.pop(done.table, None)
        for table in self._threads:
            self._abandon(table)
        for table, step in self.steps.items():
            if table not in self.done:
                self.done[table] = Done(table, step.action, "cancelled", "cancelled")

    def _watch_spark(self) -> None:
        from runnel.run.metrics.spark_progress import progress

        loan = self.work.loan
        if loan is not None and time.monotonic() > self._watch_at:
            for table in list(self._threads):
                done, total = progress(loan.session, f"{self.work.order.run} {table}")
                if total:
                    self.work.watch(
                        Event("progress", table=table, action=self.steps[table].action, done=done, total=total)
                    )
