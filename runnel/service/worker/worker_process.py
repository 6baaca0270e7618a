"""A worker's process: its Spark, what it keeps going and the runs that it takes, until it is told to stop."""

import logging
from typing import TYPE_CHECKING

from runnel.errors import RunnelError, Unreachable
from runnel.service.stale_claims import Reaper
from runnel.service.worker.continuous import Keeping
from runnel.service.worker.flow_cache import Flows
from runnel.service.worker.worker import PARALLEL, Worker
from runnel.spark.arrow_allocators import sweep
from runnel.spark.session import running
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runnel.client.lake import Lake
    from runnel.service.worker.loops.loop import Tell

LOG = logging.getLogger("runnel.worker")
_PAUSE_SECONDS = 0.5


class Working:
    """Everything that a worker's process does. Spark is started by the thread that calls `run`."""

    def __init__(
        self,
        lake: "Lake",
        environ: "Mapping[str, str]",
        tell: "Tell",
        *,
        env: str | None = None,
        branch: str = "main",
        name: str | None = None,
        parallel: int = PARALLEL,
    ) -> None:
        tracing.configure(lake.settings.telemetry, lake.settings.name)
        self._lake = lake
        self._tell = tell
        self._flows = Flows(lake, environ, env)
        self.worker = Worker(lake, self._flows, name=name, parallel=parallel, branch=branch)
        self._reaper = Reaper(lake.store.db)
        self._keeping = Keeping(lake, self._flows, branch, tell, self.worker.problems, self.worker.note_declared)

    def run(self) -> None:
        """Work until told to stop; Spark is started again where it has ended."""
        self._keeping.start()
        self.worker.start()
        while not self.worker.stop.is_set():
            self._attempt("spark", self._look_after_spark)
            self._attempt("lost runs", self._reaper.look)
            self.worker.stop.wait(_PAUSE_SECONDS)

    def _attempt(self, part: str, work: "Callable[[], object]") -> None:
        """Do one part of what is done again and again; what goes wrong there ends neither the worker nor the rest."""
        problems = self.worker.problems
        try:
            work()
            problems.clear(part)
        except Exception as error:  # the database is away, or a defect; it is looked at again
            if problems.note(part, error.what if isinstance(error, RunnelError) else f"{error!r}"):
                LOG.error("%s: %s", part, error, exc_info=error)

    def _look_after_spark(self) -> None:
        spark = running()
        if spark is not None:
            sweep(spark)  # streams read without borrowing
        elif self._needs_spark():
            self._start_spark()

    def end(self) -> bool:
        """Stop after what is under way, and tell whether all of it has ended."""
        self.worker.stop.set()
        kept = self._keeping.end()
        return self.worker.end() and kept and not self.worker.is_torn

    def hurry(self) -> None:
        """Once it is to stop, interrupt what is under way, and give it back to the queue.

        That it is to stop somebody else says: a signal that came second would be taken for an order to end at once.
        """
        self.worker.hurry.set()

    def _needs_spark(self) -> bool:
        """Tell whether the project has tasks; sources are read without Spark, or start it when they need it."""
        try:
            _, flow = self._flows.get()
        except RunnelError:
            return False  # who keeps it going tells it
        if not flow.tasks:
            self.worker.ready()
        return bool(flow.tasks)

    def _start_spark(self) -> None:
        was_there = self._lake.__dict__.pop("spark", None) is not None
        if was_there:
            self._tell("Spark's process has ended; it is started again")
        try:
            _ = self._lake.spark
        except Unreachable as error:
            LOG.error("Spark did not start", exc_info=error)
            self._tell(f"Spark did not start, it is tried again: {error}")
            raise
        self.worker.ready()
        self._keeping.warm()
