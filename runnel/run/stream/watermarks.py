"""Apply the watermarks of a stream: how late its rows may be, and which lie too far in the future to be valid."""

from typing import TYPE_CHECKING

from runnel.errors import Mistake, did_you_mean, join_names, plural
from runnel.names import quote_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from runnel.declare.model.flow import Task
    from runnel.names import TableName

AHEAD = "1 hour"  # of the clock: a row further ahead would move the watermark past all valid rows
AHEAD_ROWS = "ahead"


def add_watermarks(task: "Task", table: "TableName", frame: "DataFrame") -> "DataFrame":
    """Return the rows of a table with the watermark that a task declares for it.

    Rows too far in the future are left out and counted; they stay in the input table.
    """
    from pyspark.sql import functions as F

    for column, late in _find_watermarks(task, table, frame.columns):
        _refuse_no_time(task, column, frame)
        latest_allowed = F.current_timestamp() + F.expr(f"INTERVAL {AHEAD}")
        is_ahead = F.col(f"`{column}`") > latest_allowed
        counted = F.count(F.when(is_ahead, 1)).alias("rows")
        observed = frame.observe(f"{AHEAD_ROWS} {table}", counted)
        frame = observed.where(~is_ahead | is_ahead.isNull()).withWatermark(column, late)
    return frame


def count_late_rows(batch: "StreamingQueryProgress") -> int:
    """Return how many rows a batch left out because they came later than the watermark allows.

    Spark counts them after it has combined the rows of a group within a partition, so there may be more.
    """
    return sum(operator.numRowsDroppedByWatermark for operator in batch.stateOperators)


def count_ahead_rows(batch: "StreamingQueryProgress") -> dict[str, int]:
    """Return how many rows of each table a batch left out because they are too far in the future."""
    ahead = {}
    for name, counted in batch.observedMetrics.items():
        kind, _, table = name.partition(" ")
        if kind == AHEAD_ROWS and counted["rows"]:
            ahead[table] = int(counted["rows"])
    return ahead


def describe_left_out_rows(progress: "Iterable[StreamingQueryProgress]") -> list[str]:
    """Describe how many rows these batches left out, and why."""
    ahead, late = dict[str, int](), 0
    for batch in progress:
        late += count_late_rows(batch)
        for table, count in count_ahead_rows(batch).items():
            ahead[table] = ahead.get(table, 0) + count
    lines = [f"left out: {plural(count, 'row')} of `{table}` more than {AHEAD} ahead" for table, count in ahead.items()]
    return lines + ([f"left out: {plural(late, 'row')} later than the watermark allows"] if late else [])


def _refuse_no_time(task: "Task", column: str, frame: "DataFrame") -> None:
    kind = next(field.dataType.simpleString() for field in frame.schema if field.name.lower() == column.lower())
    if kind not in ("timestamp", "timestamp_ntz"):
        what = f"`watermark` of task `{task.table}` names `{column}`, which is a {kind}, not a timestamp"
        raise Mistake("STREAM_WATERMARK", what, at=str(task.place), fix="name a column of type timestamp")


def _find_watermarks(task: "Task", table: "TableName", columns: list[str]) -> list[tuple[str, str]]:
    names = [parameter for parameter, input_table in task.inputs if input_table == table]
    declared = [(column, late) for name, column, late in task.options.watermark if name in names]
    everywhere = [(column, late) for name, column, late in task.options.watermark if not name]
    column_names = {column.lower() for column in columns}
    stream_tables = [input_table for name, input_table in task.inputs if name in task.options.stream]
    unknown_columns = [column for column, _ in declared if column.lower() not in column_names]
    if len(stream_tables) == 1:  # else another stream may have it
        unknown_columns += [column for column, _ in everywhere if column.lower() not in column_names]
    for column in unknown_columns:
        what = f"`watermark` of task `{task.table}` names {quote_value(column)}, which `{table}` does not have"
        what += did_you_mean(column, columns)
        raise Mistake("STREAM_WATERMARK", what, at=str(task.place), fix=f"its columns: {join_names(columns)}")
    return declared or [(column, late) for column, late in everywhere if column.lower() in column_names]
