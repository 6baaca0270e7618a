"""The watermarks of a stream: how late its rows may be, and which are so far ahead that they can't be right."""

from typing import TYPE_CHECKING

from runnel.errors import Mistake, listed, nearest
from runnel.names import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from runnel.declare.model.flow import Task
    from runnel.names import TableName

AHEAD = "1 hour"  # of the clock: a row further ahead would let the watermark pass all rows that are right
AHEAD_ROWS = "ahead"


def marked(task: "Task", table: "TableName", frame: "DataFrame") -> "DataFrame":
    """Return the rows of a table with the watermark that a task declares for it.

    Rows from the future are left out, and counted: they stay in the table that is read.
    """
    from pyspark.sql import functions as F

    for column, late in _of(task, table, frame.columns):
        _refuse_no_time(task, column, frame)
        soon = F.current_timestamp() + F.expr(f"INTERVAL {AHEAD}")
        is_ahead = F.col(f"`{column}`") > soon
        counted = F.count(F.when(is_ahead, 1)).alias("rows")
        watched = frame.observe(f"{AHEAD_ROWS} {table}", counted)
        frame = watched.where(~is_ahead | is_ahead.isNull()).withWatermark(column, late)
    return frame


def left_out(progress: "Iterable[StreamingQueryProgress]") -> list[str]:
    """Say how many rows some batches left out, and why."""
    ahead, late = dict[str, int](), 0
    for batch in progress:
        late += sum(one.numRowsDroppedByWatermark for one in batch.stateOperators)
        for name, counted in batch.observedMetrics.items():
            kind, _, table = name.partition(" ")
            if kind == AHEAD_ROWS and counted["rows"]:
                ahead[table] = ahead.get(table, 0) + counted["rows"]
    told = [f"left out: {_rows(count)} of `{table}` more than {AHEAD} ahead" for table, count in ahead.items()]
    return told + ([f"left out: {_rows(late)} later than the watermark allows"] if late else [])


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _refuse_no_time(task: "Task", column: str, frame: "DataFrame") -> None:
    kind = next(field.dataType.simpleString() for field in frame.schema if field.name.lower() == column.lower())
    if kind not in ("timestamp", "timestamp_ntz"):
        what = f"`watermark` of task `{task.table}` names `{column}`, which is a {kind} and no time"
        raise Mistake("STREAM_WATERMARK", what, at=str(task.place), fix="name a column of type timestamp")


def _of(task: "Task", table: "TableName", columns: list[str]) -> list[tuple[str, str]]:
    names = [parameter for parameter, one in task.inputs if one == table]
    found = [(column, late) for name, column, late in task.options.watermark if name in names]
    everywhere = [(column, late) for name, column, late in task.options.watermark if not name]
    known = {column.lower() for column in columns}
    read = [one for name, one in task.inputs if name in task.options.stream]
    wrong = [column for column, _ in found if column.lower() not in known]
    if len(read) == 1:  # else another stream may have it
        wrong += [column for column, _ in everywhere if column.lower() not in known]
    for column in wrong:
        close = nearest(column, columns)
        what = f"`watermark` of task `{task.table}` names {shown(column)}, which `{table}` does not have"
        what += f"; close: `{close}`" if close else ""
        raise Mistake("STREAM_WATERMARK", what, at=str(task.place), fix=f"its columns: {listed(columns)}")
    return found or [(column, late) for column, late in everywhere if column.lower() in known]
