"""Run a worker process: its Spark session, the continuous loops and the claimed runs, until it is told to stop."""

import logging
from typing import TYPE_CHECKING

from runnel.errors import RunnelError, Unreachable
from runnel.service.stale_claims import StaleClaimReaper
from runnel.service.worker.continuous import ContinuousWork
from runnel.service.worker.flow_cache import FlowCache
from runnel.service.worker.worker import PARALLEL, Worker
from runnel.spark.arrow_allocators import sweep_allocators
from runnel.spark.session import running_session
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runnel.client.lake import Lake
    from runnel.service.worker.loops.loop_context import Reporter

LOG = logging.getLogger("runnel.worker")
_PAUSE_SECONDS = 0.5


class WorkerProcess:
    """A worker process. The thread that calls `run` starts Spark."""

    def __init__(
        self,
        lake: "Lake",
        environ: "Mapping[str, str]",
        report: "Reporter",
        *,
        env: str | None = None,
        branch: str = "main",
        name: str | None = None,
        parallel: int = PARALLEL,
    ) -> None:
        tracing.configure(lake.settings.telemetry, lake.settings.name)
        self._lake = lake
        self._report = report
        self._flows = FlowCache(lake, environ, env)
        self.worker = Worker(lake, self._flows, name=name, parallel=parallel, branch=branch)
        self._reaper = StaleClaimReaper(lake.store.db)
        self._continuous_work = ContinuousWork(
            lake,
            self._flows,
            branch,
            report,
            problems=self.worker.problems,
            note_declared=self.worker.note_declared,
        )

    def run(self) -> None:
        """Work until told to stop; restart Spark if it has ended."""
        self._continuous_work.start()
        self.worker.start()
        while not self.worker.stop.is_set():
            self._run_loop_once("spark", self._ensure_spark)
            self._run_loop_once("lost runs", self._reaper.release_stale_claims)
            self.worker.stop.wait(_PAUSE_SECONDS)

    def _run_loop_once(self, loop_name: str, work: "Callable[[], object]") -> None:
        """Run one loop body once; an error is noted, and ends neither the worker nor the other loops."""
        problems = self.worker.problems
        try:
            work()
            problems.clear(loop_name)
        except Exception as error:  # an unreachable database, or a defect; the loop goes on
            if problems.note(loop_name, error.what if isinstance(error, RunnelError) else f"{error!r}"):
                LOG.error("%s: %s", loop_name, error, exc_info=error)

    def _ensure_spark(self) -> None:
        spark = running_session()
        if spark is not None:
            sweep_allocators(spark)  # streams read without borrowing
        elif self._needs_spark():
            self._start_spark()

    def end(self) -> bool:
        """Stop after the active runs and loops, and return whether all of them ended cleanly."""
        self.worker.stop.set()
        loops_ended_cleanly = self._continuous_work.end()
        return self.worker.end() and loops_ended_cleanly and not self.worker.has_stuck_run

    def interrupt_runs(self) -> None:
        """Interrupt active runs when the worker stops, and give them back to the queue.

        This does not stop the worker: a second stop signal would be taken for an order to end at once.
        """
        self.worker.interrupt_requested.set()

    def _needs_spark(self) -> bool:
        """Return whether the project has tasks; sources are read without Spark, or start it when they need it."""
        try:
            _, flow = self._flows.get()
        except RunnelError:
            return False  # the continuous loops report the error
        if not flow.tasks:
            self.worker.mark_ready()
        return bool(flow.tasks)

    def _start_spark(self) -> None:
        if self._lake.spark_provider.drop():
            self._report("Spark's process has ended; the worker restarts it")
        try:
            _ = self._lake.spark
        except Unreachable as error:
            LOG.error("Spark did not start", exc_info=error)
            self._report(f"Spark did not start; the worker tries again: {error}")
            raise
        self.worker.mark_ready()
        self._continuous_work.mark_spark_ready()
