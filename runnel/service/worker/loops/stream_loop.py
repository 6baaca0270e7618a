"""Keep one stream going: Spark runs it on and on, its tapes are wound, and what its batches did is written down."""

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError, Unreachable, listed
from runnel.lake.flow_state import streams
from runnel.service.worker.loops.loop import Part, Tell
from runnel.spark.session import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow, Task
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.run.stream.stream_query import Course

_PAUSE_SECONDS = 0.03


class Follower(Part):
    """One stream that is kept going."""

    kind = "stream"

    def __init__(
        self,
        lake: "Lake",
        flow: "Flow",
        task: "Task",
        fingerprints: "Callable[[Task], Fingerprint]",  # read when it starts: a fault is its own
        branch: str,
        run: str,
        stop: threading.Event,
        tell: Tell,
    ) -> None:
        super().__init__(str(task.table), stop, tell)
        self._lake = lake
        self._flow = flow
        self._task = task
        self._fingerprints = fingerprints
        self._branch = branch
        self._run = run

    def go(self) -> None:
        """Follow the stream until it ends or is to stop."""
        spark = self._lake.spark
        try:
            self._follow()
        except RunnelError:
            raise
        except Exception as error:
            if running() is spark:
                raise
            what = f"Spark's Java process went away while it followed `{self._task.table}`"
            fix = "nothing, it is started again; if it runs out of memory, raise spark.driver.memory"
            raise Unreachable("SPARK_LOST", what, fix=fix) from error

    def _follow(self) -> None:
        """Open and start the stream, and wind its tapes."""
        from runnel.run.openlineage.stream_observer import told
        from runnel.run.stream.stream_query import Course

        self._await_inputs()
        with ExitStack() as stack:
            lake, task = self._lake, self._task
            lake.spark.sparkContext.setLocalProperty("spark.scheduler.pool", str(task.table))
            code = self._fingerprints(task)
            course = Course.open(stack, lake.store, self._flow, task, self._branch, code, self._run, lake.spark)
            stack.enter_context(told(lake.settings, course))
            query = course.start(is_endless=True)
            self.well()
            number = -1
            while not self.stop.is_set() and query.isActive:
                if not course.wind():
                    self.stop.wait(_PAUSE_SECONDS)
                number = self._measured(course, number)
            course.finish()
            course.held.told("idle")

    def troubled(self, state: str, problem: str | None) -> None:
        """Write it down with the stream."""
        streams.told(self._lake.store.db, self._branch, self._task.table, state, problem)

    def _await_inputs(self) -> None:
        """Wait until every table that it reads is there, and say so."""
        is_told = False
        while not self.stop.is_set():
            state = self._lake.store.state(self._branch)
            missing = [table for table in self._task.reads if table not in state]
            if not missing:
                return
            if not is_told:
                self.troubled("waiting", f"it reads {listed(map(str, missing))}: nothing has come there yet")
                is_told = True
            self.stop.wait(0.5)

    def _measured(self, course: "Course", told: int) -> int:
        """Write down what Spark says of the newest batch, once; return its number."""
        progress = course.query.lastProgress if course.query is not None else None
        if progress is None or progress.batchId == told:
            return told
        with_metrics = progress_of(progress)
        try:
            streams.add_detail(self._lake.store.db, str(progress.id), progress.batchId, with_metrics)
        except RunnelError:
            return told
        return int(progress.batchId)


def progress_of(progress: Any) -> dict[str, Any]:
    """Return what is kept of Spark's progress report."""
    state = progress.stateOperators
    return {
        "input_rows": progress.numInputRows,
        "total_ms": progress.durationMs.get("triggerExecution"),
        "parts_ms": dict(progress.durationMs),
        "watermark": progress.eventTime.get("watermark") if progress.eventTime else None,
        "state_rows": sum(one.numRowsTotal for one in state),
        "state_bytes": sum(one.memoryUsedBytes for one in state),
        "late_rows": sum(one.numRowsDroppedByWatermark for one in state),
    }
