"""Record what Spark reports about each batch of a stream: rows, times, state, and the rows that it left out."""

from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError
from runnel.lake.flow_state import streams
from runnel.run.stream.watermarks import count_ahead_rows, count_late_rows

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from runnel.lake.catalog.database import Database


class BatchMetricsRecorder:
    """Adds Spark's metrics to the recorded batches of one query.

    Spark also reports a batch that it may run later, while there is no data for it: such a report changes nothing.
    """

    def __init__(self, db: "Database", query: "StreamingQuery") -> None:
        self._db = db
        self._query = query
        self._last_report: tuple[int, str] | None = None
        self._last_batch = -1  # the last recorded batch that has its metrics

    def record_new_batches(self) -> None:
        """Add the metrics of batches that ended since the last call; if the database does not answer, the next does."""
        newest = self._query.lastProgress
        if newest is None or self._last_report == (newest.batchId, newest.timestamp):
            return
        reports = [newest]
        if newest.batchId > self._last_batch + 1:  # several batches ended since the last call
            reports = [progress for progress in self._query.recentProgress if progress.batchId > self._last_batch]
        for progress in reports:
            try:
                is_recorded = streams.add_detail(
                    self._db, str(progress.id), progress.batchId, summarize_progress(progress)
                )
            except RunnelError:
                return
            if is_recorded:
                self._last_batch = int(progress.batchId)
        self._last_report = (newest.batchId, newest.timestamp)


def summarize_progress(progress: "StreamingQueryProgress") -> dict[str, Any]:
    """Return the metrics that are stored from Spark's progress report of one batch."""
    state = progress.stateOperators
    return {
        "input_rows": progress.numInputRows,
        "total_ms": progress.durationMs.get("triggerExecution"),
        "parts_ms": dict(progress.durationMs),
        "watermark": progress.eventTime.get("watermark") if progress.eventTime else None,
        "state_rows": sum(operator.numRowsTotal for operator in state),
        "state_bytes": sum(operator.memoryUsedBytes for operator in state),
        "late_rows": count_late_rows(progress),
        "ahead_rows": sum(count_ahead_rows(progress).values()),
    }
