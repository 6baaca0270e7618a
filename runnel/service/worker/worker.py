"""A worker: one process with one Spark driver that takes runs off the queue, several at a time.

It renews its claims, and hears in the same breath that a run is to stop. A run that does not end when it is told to
makes the worker itself end: what it left behind in Spark must not go on.
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

from runnel.errors import Cancelled, Mistake, Moved, NoRoom, RunnelError, Unreachable, no_room
from runnel.lake.control import run_queue, workers
from runnel.lake.control.run_queue import Queued
from runnel.project.execution.run_project import Taken, run_project
from runnel.project.planning.run_request_json import asked, without_streams
from runnel.run.results.run_result import KEPT_GOING, Done, Ran
from runnel.run.step_threads import GRACE_SECONDS
from runnel.service.loop_errors import Problems
from runnel.service.memory_usage import memory_bytes
from runnel.service.worker import request_handlers
from runnel.service.worker.event_recorder import Teller
from runnel.service.worker.flow_cache import Flows
from runnel.thread_interrupt import abandon, stragglers

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.project.planning.run_request_json import Asked

LOG = logging.getLogger("runnel.worker")
PARALLEL = 4
_ERRANDS = 2  # at a time, beside the runs
_PAUSE_SECONDS = 0.025  # somebody waits for a small run
_HEED_SECONDS = 0.5
_GRACE_SECONDS = 4 * GRACE_SECONDS  # for a run that was told to stop; its steps have one grace of their own
_SCHEDULE = "schedule/"  # what the cause of a run starts with that a schedule queued
_PASSING = frozenset({"SPARK_LOST", "RUN_TIMEOUT"})  # codes of failures that may not come again


How = tuple[str, Mapping[str, Any], Sequence[RunnelError]]
"""The state that a run ended in, what it did, and what went wrong."""


@dataclass
class Held:
    """A run that this worker is at."""

    queued: Queued
    taken: Taken
    since: float = field(default_factory=time.monotonic)
    stopped_at: float | None = None  # when somebody asked for it, it took too long, or another has it
    is_late: bool = False  # it took longer than it may
    is_given_back: bool = False  # this worker ends, and another is to run it
    task_retries: int | None = None  # how often the tasks that failed may be tried again
    thread: threading.Thread | None = None


class Worker:
    """The worker of a process. `stop` ends it after what it is at; `is_torn` tells that something did not end."""

    def __init__(
        self, lake: "Lake", flows: Flows, *, name: str | None = None, parallel: int = PARALLEL, branch: str = "main"
    ) -> None:
        self.name = name or f"{socket.gethostname()[:40]}-{secrets.token_hex(4)}"
        self.stop = threading.Event()
        self.hurry = threading.Event()  # interrupt what is under way instead of waiting for it
        self.is_torn = False
        self.problems = Problems()  # of its loops, and of what it keeps going
        self._lake = lake
        self._flows = flows
        self._parallel = parallel
        self._branch = branch  # whose streams are kept going anyway
        self._held: dict[str, Held] = {}
        self._guard = threading.Lock()
        self._state = "starting"
        self._has_declared = False
        self._ended = threading.Event()
        self._taker: threading.Thread | None = None
        self._runs: set[threading.Thread] = set()
        self._left_behind: set[threading.Thread] = set()  # they do not stop, and nobody waits for them

    def start(self) -> None:
        """Say that it is there, and begin to take runs."""
        self._tell()
        self._thread("runnel claims", self._renew)
        self._taker = self._thread("runnel queue", self._take)

    def ready(self) -> None:
        """Say that it has what it needs: Spark is warm."""
        if self._state == "starting":
            self._state = "ready"
            self._tell()

    def note_declared(self, has_declared: bool) -> None:
        """Say whether this worker has declared what the flow files say now; only then the schedules are due."""
        if has_declared != self._has_declared:
            self._has_declared = has_declared
            self._tell()

    def end(self, seconds: float | None = None) -> bool:
        """Stop after what is under way, and tell whether all of it has ended by itself.

        Where that takes longer than `seconds`, or `hurry` is set, the rest is interrupted and given back to the queue.
        """
        self._state = "stopping"
        self.stop.set()
        until = time.monotonic() + seconds if seconds is not None else float("inf")
        if self._taker is not None:
            self._taker.join()
        is_whole = self._await_runs(lambda: self.hurry.is_set() or time.monotonic() > until)
        if not is_whole:
            self._cancel_all()
            grace = time.monotonic() + 2 * GRACE_SECONDS
            self._await_runs(lambda: time.monotonic() > grace)
        self._ended.set()
        with suppress(RunnelError):  # the claims end by themselves then
            run_queue.give_back(self._lake.store.db, self.name)
            workers.leave(self._lake.store.db, self.name)
        return is_whole

    def _await_runs(self, is_over: Callable[[], bool]) -> bool:
        """Wait for the runs, and tell whether they have ended; those that were left behind don't count."""
        for thread in self._runs:
            while thread.is_alive() and thread not in self._left_behind:
                if is_over():
                    return False
                thread.join(0.1)
        return True

    @property
    def at(self) -> list[str]:
        """Return the ids of what it is at."""
        with self._guard:
            return sorted(self._held)

    def _thread(self, name: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread

    def _take(self) -> None:
        """Take runs and what else is asked for, as many at a time as may be, each in a thread of its own."""
        while not self.stop.is_set():
            self._runs = {thread for thread in self._runs if thread.is_alive()}
            kinds = self._kinds()
            try:
                found = run_queue.claim(self._lake.store.db, self.name, kinds) if kinds else None
                self.problems.clear("queue")
            except Exception as error:  # the database is away, or a defect: neither may end the loop
                if self.problems.note("queue", str(error)):
                    LOG.warning("no run could be claimed: %s", error, exc_info=error)
                self.stop.wait(1.0)
                continue
            if found is None:
                self.stop.wait(_PAUSE_SECONDS)
                continue
            held = Held(found, taken_of(found))
            with self._guard:
                self._held[found.id] = held
            held.thread = self._thread(f"runnel {found.run}", partial(self._carry_out, held))
            self._runs.add(held.thread)

    def _kinds(self) -> tuple[str, ...]:
        """Return what there is room for; runs don't hold up what is only asked."""
        with self._guard:
            kinds = [one.queued.kind for one in self._held.values()]
        running = kinds.count("run")
        runs = ("run",) if running < self._parallel else ()
        return (*runs, *request_handlers.KINDS) if len(kinds) - running < _ERRANDS else runs

    def _carry_out(self, held: Held) -> None:
        """Run an entry, and note how it went."""
        queued = held.queued
        teller = Teller(self._lake.store.db, queued.id)
        try:
            state, outcome, errors = self._attempt(held, teller)
        except BaseException as error:  # a defect must not end the worker
            LOG.error("run %s met what nobody told", queued.run, exc_info=error)
            fix = "this is a defect of Runnel; the trace is in the worker's log"
            defect = RunnelError("INTERNAL", f"unexpected {type(error).__name__}: {error}", fix=fix)
            state, outcome, errors = _failed(no_room(error) or defect)
        teller.close()
        if state == run_queue.CANCELLED and held.is_given_back and held.stopped_at is None:
            self._drop(held)  # nobody asked the run itself to stop
        else:
            self._finish(held, state, outcome, errors)
        if left := stragglers():
            self._tear(f"run {queued.run} left {', '.join(left)} behind")

    def _attempt(self, held: Held, teller: Teller) -> "How":
        """Return how a run ended."""
        wanted = asked(held.queued)
        try:
            lake, flow = self._flows.get(wanted.overrides)
            if (removed := _removed_schedule(held.queued, flow)) is not None:
                return run_queue.CANCELLED, {"error": removed.told()}, ()
            if held.queued.kind in request_handlers.KINDS:
                return run_queue.SUCCEEDED, request_handlers.answer(lake, flow, held.queued, held.taken.cancelled), ()
            ran = self._run(held, teller, wanted, lake, flow)
        except RunnelError as error:
            if held.stopped_at is not None or held.is_given_back or isinstance(error, Cancelled):
                return self._stopped(held)
            LOG.error("run %s failed", held.queued.run, exc_info=error)
            return _failed(error)
        if ran.state == "cancelled":
            return self._stopped(held)
        failed = [flow.tasks[step.table] for step in ran.steps if step.state == "failed" and step.table in flow.tasks]
        held.task_retries = min((task.options.retries for task in failed), default=None)
        return ran.state, _json(ran), ran.errors

    def _run(self, held: Held, teller: Teller, wanted: "Asked", lake: "Lake", flow: "Flow") -> Ran:
        """Run what is wanted; of streams that are kept going anyway it is only said that they are."""
        wish, streams = without_streams(wanted.wish, flow) if wanted.wish.branch == self._branch else (wanted.wish, ())
        ran = Ran(None, "nothing", wanted.wish.branch, None, 0.0, ())
        if wish is not None:
            ran = run_project(lake, wish, message=wanted.message, watch=teller.see, flow=flow, taken=held.taken)
        kept = [Done(table, "stream", "skipped", KEPT_GOING) for table in streams]
        return replace(ran, steps=(*ran.steps, *kept))

    def _stopped(self, held: Held) -> "How":
        if not held.is_late:
            return run_queue.CANCELLED, {}, ()
        error = RunnelError(
            "RUN_TIMEOUT",
            f"run {held.queued.id} took longer than the {held.queued.timeout_seconds} s that it may",
            fix="raise `timeout`, or give it less to do",
        )
        return _failed(error)

    def _finish(self, held: Held, state: str, outcome: Mapping[str, Any], errors: Sequence[RunnelError]) -> None:
        """Note how a run ended, however long the database is away: the claim is renewed meanwhile."""
        again = state == run_queue.FAILED and all(_is_passing(error) for error in errors)
        counts = not errors or not all(isinstance(error, NoRoom) for error in errors)
        if counts and held.task_retries is not None:
            again = again and held.queued.attempt <= held.task_retries  # what a task says holds for the queue, too
        while True:
            try:
                run_queue.finish(self._lake.store.db, held.queued.claim, state, outcome, again=again, counts=counts)
                break
            except RunnelError as error:
                LOG.warning("how run %s ended could not be noted yet: %s", held.queued.run, error)
                if self._ended.wait(1.0):
                    break
        self._drop(held)

    def _drop(self, held: Held) -> None:
        with self._guard:
            self._held.pop(held.queued.id, None)

    def _renew(self) -> None:
        """Renew what is held now and then, and stop what is to stop as soon as somebody says so."""
        db, renewed = self._lake.store.db, time.monotonic()
        while not self._ended.wait(_HEED_SECONDS):
            with self._guard:
                held = list(self._held.values())
            claims = [one.queued.claim for one in held]
            try:
                if time.monotonic() - renewed > run_queue.RENEW_SECONDS:
                    run_queue.renew(db, claims)
                    self._tell()
                    renewed = time.monotonic()
                found = db.read(partial(run_queue.held, claims=claims)) if claims else {}
                for one in held:
                    self._heed(one, found)
                self.problems.clear("claims")
            except Exception as error:  # the database is away, or a defect; what is lost by then can't publish
                if self.problems.note("claims", str(error)):
                    LOG.warning("claims could not be renewed: %s", error, exc_info=error)
            self._look_after_the_stubborn()

    def _heed(self, one: Held, renewed: Mapping[str, str | None]) -> None:
        timeout = one.queued.timeout_seconds
        one.is_late = one.is_late or (timeout is not None and time.monotonic() - one.since > timeout)
        is_lost = one.queued.id not in renewed
        if is_lost or renewed.get(one.queued.id) is not None or one.is_late:
            one.stopped_at = one.stopped_at or time.monotonic()
            one.taken.cancelled.set()

    def _look_after_the_stubborn(self) -> None:
        """Note how a run ended that goes on although it was told to stop, and end the worker: only that ends it."""
        now = time.monotonic()
        with self._guard:
            stubborn = [one for one in self._held.values() if now - (one.stopped_at or now) > _GRACE_SECONDS]
        for one in stubborn:
            state, outcome, errors = self._stopped(one)
            if one.thread is not None:
                abandon(one.thread)
                self._left_behind.add(one.thread)
            self._finish(one, state, outcome, errors)  # its token is void then: it can't publish any more
            self._tear(f"run {one.queued.run} does not stop")

    def _tear(self, reason: str) -> None:
        """Take no more runs, finish the others, and end: a thread that does not stop ends with its process."""
        if not self.is_torn:
            LOG.error("%s; this worker takes no more runs, and is replaced", reason)
        self.is_torn = True
        self.stop.set()

    def _cancel_all(self) -> None:
        with self._guard:
            for one in self._held.values():
                one.is_given_back = True
                one.taken.cancelled.set()

    def _tell(self) -> None:
        settings = self._lake.settings
        detail: dict[str, Any] = {
            "runs": self.at,
            "parallel": self._parallel,
            "project": settings.name,
            "root": str(settings.root),
        }
        detail |= {"memory_bytes": memory_bytes(), "problems": self.problems.json(), "has_declared": self._has_declared}
        workers.tell(self._lake.store.db, self.name, workers.WORKER, self._state, detail)


def taken_of(found: Queued) -> Taken:
    """Return an entry that was claimed as the run that it becomes."""
    due, trace = found.wish.get("due"), found.wish.get("trace")
    return Taken(
        found.run,
        found.claim,
        queued_seconds=found.waited_seconds,
        cause=found.cause,
        due=due if due and not due.startswith("#") else None,
        trace=trace,
    )


def _removed_schedule(queued: Queued, flow: "Flow") -> RunnelError | None:
    """Return why a run is not begun that a schedule queued which the flow files no longer declare."""
    name = queued.cause.removeprefix(_SCHEDULE)
    if not queued.cause.startswith(_SCHEDULE) or name in {schedule.name for schedule in flow.schedules}:
        return None
    what = f"schedule `{name}` is no longer declared, so what it had queued is not run"
    return RunnelError("SCHEDULE_REMOVED", what, fix=f"`runnel retry {queued.id}` runs it all the same")


def _is_passing(error: RunnelError) -> bool:
    """Tell whether a failure may not come again: something was away, or somebody else was faster."""
    if isinstance(error, Mistake):
        return False
    return isinstance(error, Unreachable | Moved) or error.code in _PASSING


def _failed(error: RunnelError) -> How:
    return run_queue.FAILED, {"error": error.told()}, (error,)


def _json(ran: "Ran") -> dict[str, Any]:
    found = ran.json()
    for step, shown in zip(ran.steps, found["steps"], strict=True):
        if step.error is not None:
            shown["error"] = step.error.told()
    return found
