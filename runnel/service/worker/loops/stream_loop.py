"""Run one stream continuously: start its Spark query, extend its append logs, and record the metrics of its batches."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

from runnel.errors import RunnelError, Unreachable, join_names
from runnel.lake.flow_state import streams
from runnel.service.worker.loops.loop import Loop
from runnel.spark.session import running_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.declare.model.flow import Task
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.service.worker.loops.loop_context import LoopContext

_PAUSE_SECONDS = 0.03


class StreamLoop(Loop):
    """Runs one stream continuously."""

    kind = "stream"

    def __init__(
        self,
        context: "LoopContext",
        task: "Task",
        fingerprints: "Callable[[Task], Fingerprint]",  # called when it starts: an error is its own
    ) -> None:
        super().__init__(str(task.table), context)
        self._task = task
        self._fingerprints = fingerprints

    def run_loop(self) -> None:
        """Run the stream until it ends or is told to stop."""
        spark = self.context.lake.spark
        try:
            self._run_query()
        except RunnelError:
            raise
        except Exception as error:
            if running_session() is spark:
                raise
            what = f"Spark's Java process ended while it ran the stream of `{self._task.table}`"
            fix = "nothing: the worker restarts it; if it runs out of memory, raise spark.driver.memory"
            raise Unreachable("SPARK_LOST", what, fix=fix) from error

    def _run_query(self) -> None:
        """Open and start the query, and extend its append logs until it stops."""
        from runnel.run.openlineage.stream_observer import StreamLineage
        from runnel.run.stream.batch_metrics import BatchMetricsRecorder
        from runnel.run.stream.stream_query import StreamQuery, StreamSpec

        self._await_inputs()
        with ExitStack() as stack:
            context, lake, task = self.context, self.context.lake, self._task
            lake.spark.sparkContext.setLocalProperty("spark.scheduler.pool", str(task.table))
            stream_spec = StreamSpec(context.flow, task, context.branch, self._fingerprints(task), context.run_id)
            lineage = StreamLineage(lake.settings, lake.store, stream_spec)
            stream_query = StreamQuery.open(stack, lake.store, stream_spec, lake.spark, [lineage.on_batch_done])
            stack.enter_context(lineage.report(stream_query.publisher))
            query = stream_query.start(is_endless=True)
            self.mark_healthy()
            metrics = BatchMetricsRecorder(lake.store.db, query)
            while not self.stop.is_set() and query.isActive:
                if not stream_query.extend_logs():
                    self.stop.wait(_PAUSE_SECONDS)
                metrics.record_new_batches()
            stream_query.finish()
            metrics.record_new_batches()
            stream_query.claim.set_state("idle")

    def record_state(self, state: str, problem: str | None) -> None:
        """Record the state in the stream's row."""
        streams.record_state(self.context.lake.store.db, self.context.branch, self._task.table, state, problem)

    def _await_inputs(self) -> None:
        """Wait until every table that the stream reads exists; record while waiting."""
        is_reported = False
        while not self.stop.is_set():
            state = self.context.lake.store.state(self.context.branch)
            missing = [table for table in self._task.input_tables if table not in state]
            if not missing:
                return
            if not is_reported:
                self.record_state("waiting", f"it reads {join_names(map(str, missing))}, which has no data yet")
                is_reported = True
            self.stop.wait(0.5)
