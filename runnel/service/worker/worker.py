"""A worker: one process with one Spark driver that claims runs from the queue and executes several at a time.

It renews its claims and checks at the same time whether a run was cancelled. If a cancelled run does not stop, the
worker itself ends, because what the run left behind in Spark must not continue.
"""

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from runnel.errors import Cancelled, Mistake, NoRoom, RunnelError, Unreachable, VersionConflict, find_disk_full
from runnel.lake.control import queue_entry, run_claims, workers
from runnel.lake.control.queue_entry import QueueEntry
from runnel.model.run_request import RunRequest
from runnel.project.execution.run_project import ClaimedRun, run_project
from runnel.project.planning.stream_exclusion import without_streams
from runnel.run.results.run_result import RUN_BY_SERVICE, RunResult, StepResult
from runnel.run.step_threads import GRACE_SECONDS
from runnel.service.loop_errors import LoopProblems
from runnel.service.memory_usage import measure_memory_bytes
from runnel.service.worker import request_handlers
from runnel.service.worker.event_recorder import EventRecorder
from runnel.service.worker.flow_cache import FlowCache
from runnel.thread_interrupt import abandon_thread, list_abandoned_threads

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow

LOG = logging.getLogger("runnel.worker")
PARALLEL = 4
_MAX_OTHER_REQUESTS = 2  # plans and queries at a time, in addition to the runs
_PAUSE_SECONDS = 0.025  # short, because users wait for small runs
_STOP_CHECK_SECONDS = 0.5
_GRACE_SECONDS = 4 * GRACE_SECONDS  # for a run that was told to stop; its steps have a grace period of their own
_SCHEDULE_PREFIX = "schedule/"  # the cause of a run that a schedule queued starts with this
_TRANSIENT_CODES = frozenset({"SPARK_LOST", "RUN_TIMEOUT"})  # error codes of failures that a retry may not meet again


EntryOutcome = tuple[str, Mapping[str, Any], Sequence[RunnelError]]
"""The final state of a queue entry, its outcome as JSON, and its errors."""


@dataclass
class ActiveRun:
    """A queue entry that this worker is executing."""

    entry: QueueEntry
    claimed_run: ClaimedRun
    started_at: float = field(default_factory=time.monotonic)
    stop_requested_at: float | None = None  # somebody cancelled it, it took too long, or the claim was lost
    is_timed_out: bool = False  # it ran longer than its timeout
    is_handed_back: bool = False  # this worker ends, and another one will run it
    task_retries: int | None = None  # the smallest `retries` of the tasks that failed
    thread: threading.Thread | None = None


class Worker:
    """The worker of a process. `stop` ends it after its active runs; `has_stuck_run` is set if a run did not stop."""

    def __init__(
        self, lake: "Lake", flows: FlowCache, *, name: str | None = None, parallel: int = PARALLEL, branch: str = "main"
    ) -> None:
        self.name = name or f"{socket.gethostname()[:40]}-{secrets.token_hex(4)}"
        self.stop = threading.Event()
        self.interrupt_requested = threading.Event()  # set to interrupt active runs instead of waiting for them
        self.has_stuck_run = False
        self.problems = LoopProblems()  # of its own loops and of the continuous ones
        self._lake = lake
        self._flows = flows
        self._parallel = parallel
        self._branch = branch  # its streams run continuously anyway
        self._active_runs: dict[str, ActiveRun] = {}
        self._lock = threading.Lock()
        self._state = "starting"
        self._has_declared = False
        self._ended = threading.Event()
        self._claim_thread: threading.Thread | None = None
        self._run_threads: set[threading.Thread] = set()
        self._abandoned_threads: set[threading.Thread] = set()  # they do not stop; nobody waits for them

    def start(self) -> None:
        """Register the worker, and start claiming runs."""
        self._report_presence()
        self._start_thread("runnel claims", self._renew_loop)
        self._claim_thread = self._start_thread("runnel queue", self._claim_loop)

    def mark_ready(self) -> None:
        """Set the worker's state to ready: Spark has started."""
        if self._state == "starting":
            self._state = "ready"
            self._report_presence()

    def note_declared(self, has_declared: bool) -> None:
        """Publish whether this worker has declared the current flow files; schedules queue nothing before that."""
        if has_declared != self._has_declared:
            self._has_declared = has_declared
            self._report_presence()

    def end(self, seconds: float | None = None) -> bool:
        """Stop after the active runs, and return whether all of them ended by themselves.

        After `seconds`, or once `interrupt_requested` is set, the other runs are interrupted and given back to the
        queue.
        """
        self._state = "stopping"
        self.stop.set()
        deadline = time.monotonic() + seconds if seconds is not None else float("inf")
        if self._claim_thread is not None:
            self._claim_thread.join()
        ended_cleanly = self._await_runs(lambda: self.interrupt_requested.is_set() or time.monotonic() > deadline)
        if not ended_cleanly:
            self._cancel_all()
            grace_deadline = time.monotonic() + 2 * GRACE_SECONDS
            self._await_runs(lambda: time.monotonic() > grace_deadline)
        self._ended.set()
        with suppress(RunnelError):  # the claims expire by themselves then
            run_claims.requeue_interrupted(self._lake.store.db, self.name)
            workers.remove(self._lake.store.db, self.name)
        return ended_cleanly

    def _await_runs(self, is_over: Callable[[], bool]) -> bool:
        """Wait for the runs, and return whether they have ended; abandoned ones don't count."""
        for thread in self._run_threads:
            while thread.is_alive() and thread not in self._abandoned_threads:
                if is_over():
                    return False
                thread.join(0.1)
        return True

    @property
    def active_run_ids(self) -> list[str]:
        """Return the ids of the active queue entries."""
        with self._lock:
            return sorted(self._active_runs)

    def _start_thread(self, name: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread

    def _claim_loop(self) -> None:
        """Claim runs, plans and queries as far as there is capacity, and execute each in a thread of its own."""
        while not self.stop.is_set():
            self._run_threads = {thread for thread in self._run_threads if thread.is_alive()}
            kinds = self._claimable_kinds()
            try:
                entry = run_claims.claim(self._lake.store.db, self.name, kinds) if kinds else None
                self.problems.clear("queue")
            except Exception as error:  # an unreachable database, or a defect: neither may end the loop
                if self.problems.note("queue", str(error)):
                    LOG.warning("no run could be claimed: %s", error, exc_info=error)
                self.stop.wait(1.0)
                continue
            if entry is None:
                self.stop.wait(_PAUSE_SECONDS)
                continue
            active_run = ActiveRun(entry, to_claimed_run(entry))
            with self._lock:
                self._active_runs[entry.id] = active_run
            active_run.thread = self._start_thread(f"runnel {entry.run}", partial(self._execute, active_run))
            self._run_threads.add(active_run.thread)

    def _claimable_kinds(self) -> tuple[str, ...]:
        """Return the kinds of entries there is capacity for; runs don't delay plans and queries."""
        with self._lock:
            kinds = [active_run.entry.kind for active_run in self._active_runs.values()]
        run_count = kinds.count("run")
        run_kinds = ("run",) if run_count < self._parallel else ()
        return (*run_kinds, *request_handlers.KINDS) if len(kinds) - run_count < _MAX_OTHER_REQUESTS else run_kinds

    def _execute(self, active_run: ActiveRun) -> None:
        """Execute an entry, and record how it ended."""
        entry = active_run.entry
        recorder = EventRecorder(self._lake.store.db, entry.id)
        try:
            state, outcome, errors = self._attempt_entry(active_run, recorder)
        except BaseException as error:  # a defect must not end the worker
            LOG.error("run %s failed unexpectedly", entry.run, exc_info=error)
            fix = "this is a defect of Runnel; the trace is in the worker's log"
            defect = RunnelError("INTERNAL", f"unexpected {type(error).__name__}: {error}", fix=fix)
            state, outcome, errors = _fail_with(find_disk_full(error) or defect)
        recorder.close()
        if state == queue_entry.CANCELLED and active_run.is_handed_back and active_run.stop_requested_at is None:
            self._forget_run(active_run)  # the worker ends; nobody cancelled the run itself
        else:
            self._record_end(active_run, state, outcome, errors)
        if leftover_threads := list_abandoned_threads():
            self._retire(f"run {entry.run} left {', '.join(leftover_threads)} behind")

    def _attempt_entry(self, active_run: ActiveRun, recorder: EventRecorder) -> "EntryOutcome":
        """Execute an entry once, and return how it ended."""
        request = active_run.entry.request
        try:
            lake, flow = self._flows.get(request.overrides)
            if (removed_error := _find_removed_schedule(active_run.entry, flow)) is not None:
                return queue_entry.CANCELLED, {"error": removed_error.to_json_with_kind()}, ()
            if not isinstance(request, RunRequest):
                answer = request_handlers.answer_request(
                    lake, flow, request, active_run.entry.author, active_run.claimed_run.cancelled
                )
                return queue_entry.SUCCEEDED, answer, ()
            result = self._run_tables(active_run, recorder, lake, flow)
        except RunnelError as error:
            if active_run.stop_requested_at is not None or active_run.is_handed_back or isinstance(error, Cancelled):
                return self._describe_stop(active_run)
            LOG.error("run %s failed", active_run.entry.run, exc_info=error)
            return _fail_with(error)
        if result.state == "cancelled":
            return self._describe_stop(active_run)
        failed_tasks = [
            flow.tasks[step.table] for step in result.steps if step.state == "failed" and step.table in flow.tasks
        ]
        active_run.task_retries = min((task.options.retries for task in failed_tasks), default=None)
        return result.state, _result_to_json(result), result.errors

    def _run_tables(self, active_run: ActiveRun, recorder: EventRecorder, lake: "Lake", flow: "Flow") -> RunResult:
        """Run the requested tables; streams that run continuously anyway are reported as skipped."""
        requested = active_run.entry.run_request
        request, streams = without_streams(requested, flow) if requested.branch == self._branch else (requested, ())
        result = RunResult(None, "nothing", requested.branch, None, 0.0, ())
        if request is not None:
            result = run_project(
                lake, request, watch=recorder.record_event, flow=flow, claimed_run=active_run.claimed_run
            )
        stream_steps = [StepResult(table, "stream", "skipped", RUN_BY_SERVICE) for table in streams]
        return replace(result, steps=(*result.steps, *stream_steps))

    def _describe_stop(self, active_run: ActiveRun) -> "EntryOutcome":
        if not active_run.is_timed_out:
            return queue_entry.CANCELLED, {}, ()
        error = RunnelError(
            "RUN_TIMEOUT",
            f"run {active_run.entry.id} took longer than its timeout of {active_run.entry.timeout_seconds} s",
            fix="raise `timeout`, or give it less to do",
        )
        return _fail_with(error)

    def _record_end(
        self, active_run: ActiveRun, state: str, outcome: Mapping[str, Any], errors: Sequence[RunnelError]
    ) -> None:
        """Record how a run ended, retrying while the database is unreachable: the claim is renewed meanwhile."""
        should_retry = state == queue_entry.FAILED and all(_is_transient(error) for error in errors)
        is_counted = not errors or not all(isinstance(error, NoRoom) for error in errors)
        if is_counted and active_run.task_retries is not None:
            should_retry = should_retry and active_run.entry.attempt <= active_run.task_retries  # the task's limit
        while True:
            try:
                run_claims.finish(
                    self._lake.store.db,
                    active_run.entry.claim,
                    state,
                    outcome,
                    retry=should_retry,
                    counts_as_attempt=is_counted,
                )
                break
            except RunnelError as error:
                LOG.warning("the outcome of run %s could not be stored yet: %s", active_run.entry.run, error)
                if self._ended.wait(1.0):
                    break
        self._forget_run(active_run)

    def _forget_run(self, active_run: ActiveRun) -> None:
        with self._lock:
            self._active_runs.pop(active_run.entry.id, None)

    def _renew_loop(self) -> None:
        """Renew the claims of active runs, and stop runs that were cancelled, timed out or lost their claim."""
        db, renewed_at = self._lake.store.db, time.monotonic()
        while not self._ended.wait(_STOP_CHECK_SECONDS):
            with self._lock:
                active_runs = list(self._active_runs.values())
            claims = [active_run.entry.claim for active_run in active_runs]
            try:
                if time.monotonic() - renewed_at > run_claims.RENEW_SECONDS:
                    run_claims.renew(db, claims)
                    self._report_presence()
                    renewed_at = time.monotonic()
                held_claims = db.read(partial(run_claims.find_valid_claims, claims=claims)) if claims else {}
                for active_run in active_runs:
                    self._stop_if_due(active_run, held_claims)
                self.problems.clear("claims")
            except Exception as error:  # an unreachable database, or a defect; a run that loses its claim can't publish
                if self.problems.note("claims", str(error)):
                    LOG.warning("claims could not be renewed: %s", error, exc_info=error)
            self._abandon_stuck_runs()

    def _stop_if_due(self, active_run: ActiveRun, held_claims: Mapping[str, str | None]) -> None:
        timeout = active_run.entry.timeout_seconds
        active_run.is_timed_out = active_run.is_timed_out or (
            timeout is not None and time.monotonic() - active_run.started_at > timeout
        )
        is_lost = active_run.entry.id not in held_claims
        if is_lost or held_claims.get(active_run.entry.id) is not None or active_run.is_timed_out:
            active_run.stop_requested_at = active_run.stop_requested_at or time.monotonic()
            active_run.claimed_run.cancelled.set()

    def _abandon_stuck_runs(self) -> None:
        """Give up on runs that don't stop: record their end, and end the worker, which alone ends their threads."""
        now = time.monotonic()
        with self._lock:
            stuck_runs = [
                active_run
                for active_run in self._active_runs.values()
                if now - (active_run.stop_requested_at or now) > _GRACE_SECONDS
            ]
        for active_run in stuck_runs:
            state, outcome, errors = self._describe_stop(active_run)
            if active_run.thread is not None:
                abandon_thread(active_run.thread)
                self._abandoned_threads.add(active_run.thread)
            self._record_end(active_run, state, outcome, errors)  # its claim token is void then: it can't publish
            self._retire(f"run {active_run.entry.run} does not stop")

    def _retire(self, reason: str) -> None:
        """Claim no more runs, finish the others, and end: a thread that does not stop ends with its process."""
        if not self.has_stuck_run:
            LOG.error("%s; this worker takes no more runs and is replaced", reason)
        self.has_stuck_run = True
        self.stop.set()

    def _cancel_all(self) -> None:
        with self._lock:
            for active_run in self._active_runs.values():
                active_run.is_handed_back = True
                active_run.claimed_run.cancelled.set()

    def _report_presence(self) -> None:
        settings = self._lake.settings
        detail: dict[str, Any] = {
            "runs": self.active_run_ids,
            "parallel": self._parallel,
            "project": settings.name,
            "root": str(settings.root),
        }
        detail |= {
            "memory_bytes": measure_memory_bytes(),
            "problems": self.problems.json(),
            "has_declared": self._has_declared,
        }
        workers.record_state(self._lake.store.db, self.name, workers.WORKER, self._state, detail)


def to_claimed_run(entry: QueueEntry) -> ClaimedRun:
    """Convert a claimed queue entry to the run that it becomes."""
    schedule_slot = entry.schedule_slot
    return ClaimedRun(
        entry.run,
        entry.claim,
        queued_seconds=entry.waited_seconds,
        cause=entry.cause,
        due=schedule_slot.due_text if schedule_slot is not None and schedule_slot.is_timed else None,
        trace=entry.trace,
    )


def _find_removed_schedule(entry: QueueEntry, flow: "Flow") -> RunnelError | None:
    """Return an error if a schedule queued the entry that the flow files no longer declare."""
    name = entry.cause.removeprefix(_SCHEDULE_PREFIX)
    if not entry.cause.startswith(_SCHEDULE_PREFIX) or name in {schedule.name for schedule in flow.schedules}:
        return None
    what = f"schedule `{name}` is no longer declared, so the run that it queued is not executed"
    return RunnelError("SCHEDULE_REMOVED", what, fix=f"`runnel retry {entry.id}` runs it anyway")


def _is_transient(error: RunnelError) -> bool:
    """Return whether a retry may succeed: a system was unreachable, or another writer was faster."""
    if isinstance(error, Mistake):
        return False
    return isinstance(error, Unreachable | VersionConflict) or error.code in _TRANSIENT_CODES


def _fail_with(error: RunnelError) -> EntryOutcome:
    return queue_entry.FAILED, {"error": error.to_json_with_kind()}, (error,)


def _result_to_json(result: "RunResult") -> dict[str, Any]:
    result_json = result.json()
    for step, step_json in zip(result.steps, result_json["steps"], strict=True):
        if step.error is not None:
            step_json["error"] = step.error.to_json_with_kind()
    return result_json
