"""Run one stream continuously: start its Spark query, extend its append logs, and record the metrics of its batches."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError, Unreachable, join_names
from runnel.lake.flow_state import streams
from runnel.service.worker.loops.loop import Loop
from runnel.spark.session import running_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.declare.model.flow import Task
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.run.stream.stream_query import StreamQuery
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
            batch_number = -1
            while not self.stop.is_set() and query.isActive:
                if not stream_query.extend_logs():
                    self.stop.wait(_PAUSE_SECONDS)
                batch_number = self._record_progress(stream_query, batch_number)
            stream_query.finish()
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

    def _record_progress(self, stream_query: "StreamQuery", last_batch: int) -> int:
        """Record Spark's metrics of the newest batch, once, and return the number of the last recorded batch."""
        progress = stream_query.streaming_query.lastProgress if stream_query.streaming_query is not None else None
        if progress is None or progress.batchId == last_batch:
            return last_batch
        metrics = summarize_progress(progress)
        try:
            streams.add_detail(self.context.lake.store.db, str(progress.id), progress.batchId, metrics)
        except RunnelError:
            return last_batch
        return int(progress.batchId)


def summarize_progress(progress: Any) -> dict[str, Any]:
    """Return the metrics that are stored from Spark's progress report."""
    state = progress.stateOperators
    return {
        "input_rows": progress.numInputRows,
        "total_ms": progress.durationMs.get("triggerExecution"),
        "parts_ms": dict(progress.durationMs),
        "watermark": progress.eventTime.get("watermark") if progress.eventTime else None,
        "state_rows": sum(operator.numRowsTotal for operator in state),
        "state_bytes": sum(operator.memoryUsedBytes for operator in state),
        "late_rows": sum(operator.numRowsDroppedByWatermark for operator in state),
    }
