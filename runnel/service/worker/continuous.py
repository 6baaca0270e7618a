"""Run the streams and polled sources of a branch in exactly one worker, always with the project's current code."""

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.control import declarations, schedules
from runnel.lake.control.leader_lease import LeaderLease
from runnel.project.inspection.declarations import collect_declarations
from runnel.service.loop_errors import LoopProblems
from runnel.service.worker.loops.loop_supervisor import LoopSupervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.service.worker.flow_cache import FlowCache
    from runnel.service.worker.loops.loop_context import Reporter

LOG = logging.getLogger("runnel.worker")
_PAUSE_SECONDS = 1.0


class ContinuousWork:
    """The continuous loops of a branch, run while this worker holds the lease.

    It also writes to the catalog what the service must know about the flow: schedules, sources, sinks, alerts.
    """

    def __init__(
        self,
        lake: "Lake",
        flows: "FlowCache",
        branch: str,
        report: "Reporter",
        *,
        problems: LoopProblems,
        note_declared: "Callable[[bool], None]" = lambda _: None,
    ) -> None:
        self._flows = flows
        self._branch = branch
        self._report = report
        self._lease = LeaderLease(lake.store.db, f"keep/{branch}")
        self._stop = threading.Event()
        self._spark_ready = threading.Event()
        self._flow: Flow | None = None
        self._supervisor: LoopSupervisor | None = None
        self._supervisor_thread: threading.Thread | None = None
        self._problems = problems
        self._note_declared = note_declared  # called with whether the catalog matches this worker's flow files
        self._thread = threading.Thread(target=self._follow_loop, name="runnel keep", daemon=True)

    def start(self) -> None:
        """Start the loops; streams wait until `mark_spark_ready` is called."""
        self._thread.start()

    def mark_spark_ready(self) -> None:
        """Let the loops that need Spark start."""
        self._spark_ready.set()

    def end(self) -> bool:
        """Stop the loops after their current work, and return whether they ended cleanly."""
        self._stop.set()
        self._thread.join()
        ended_cleanly = self._end_loops()
        with suppress(RunnelError):  # the lease expires by itself then
            self._lease.release()
        return ended_cleanly

    def _follow_loop(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow_project()
                self._problems.clear("flows")
            except RunnelError as error:
                if self._problems.note("flows", str(error)):
                    self._report(str(error))
            except Exception as error:  # a defect must not end the other loops
                if self._problems.note("flows", f"{type(error).__name__}: {error}"):
                    LOG.error("a defect of Runnel", exc_info=error)
            self._stop.wait(_PAUSE_SECONDS)

    def _follow_project(self) -> None:
        """Acquire the lease if it is free, and restart the loops if the project's files have changed."""
        if not self._lease.acquire():
            if self._supervisor is not None:
                self._report("another worker runs the streams and sources now")
                self._end_loops()
            self._flow = None
            self._note_declared(False)
            return
        lake, flow = self._flows.get()
        if flow is self._flow:
            return
        if self._flow is not None:
            self._report("the project's files have changed: streams and sources continue with the new code")
        self._end_loops()
        schedules.declare(lake.store.db, [schedule.json() for schedule in flow.schedules])
        declarations.write_declarations(lake.store.db, collect_declarations(flow))
        self._note_declared(True)
        self._start_loops(lake, flow)
        self._flow = flow

    def _start_loops(self, lake: "Lake", flow: "Flow") -> None:
        supervisor = LoopSupervisor(lake, flow, self._branch, self._report, self._note_problem)
        if not supervisor.loops:
            return
        if supervisor.needs_spark:
            while not self._spark_ready.wait(0.2):
                if self._stop.is_set():
                    return
                self._lease.acquire()
        self._report(f"{lake.settings.name} on {self._branch}: {supervisor.summary}")
        self._problems.clear("streams and sources")
        self._supervisor = supervisor
        self._supervisor_thread = threading.Thread(
            target=self._run_loops, args=(supervisor,), name="runnel keeper", daemon=True
        )
        self._supervisor_thread.start()

    def _note_problem(self, loop_name: str, problem: str | None) -> None:
        """Show problems of loops that have no row of their own among streams, sources and sinks, such as compaction."""
        self._problems.clear(loop_name) if problem is None else self._problems.note(loop_name, problem)

    def _run_loops(self, supervisor: LoopSupervisor) -> None:
        try:
            supervisor.run()
        except Exception as error:
            LOG.error("streams and sources have stopped", exc_info=error)
            self._report(f"streams and sources have stopped: {error}")
            self._problems.note("streams and sources", f"streams and sources have stopped: {error}")
            self._flow = None  # the loops are started again at the next look

    def _end_loops(self) -> bool:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return True
        ended_cleanly = supervisor.shut_down()
        if self._supervisor_thread is not None:
            self._supervisor_thread.join(10)
        return ended_cleanly
