"""Which rows fail a task's checks, on the frame of a test."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from runnel.declare.model.column_types import Column
from runnel.declare.model.flow import Check, Task
from runnel.declare.sql.literals import column
from runnel.internal_names import internal_column
from runnel.names import TableName
from runnel.run.checks.row_checks import failing, invalid, row_checks
from runnel.run.write.frame_schema import kind_of
from runnel.testing.literal_rows import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES, _THEIRS = (internal_column(word) for word in ("times", "theirs"))


def failed(task: Task, frame: "DataFrame", inputs: "Mapping[TableName, DataFrame]") -> dict[str, list[dict[str, Any]]]:
    """Return the rows that fail a check, by its text; checks that hold are left out.

    `fresh` depends on the clock, and `references` on a table that the test may not have: they count as holding.
    """
    checks = row_checks(task)
    wrong = invalid(frame, checks, [Column(one.name, kind_of(one.dataType.jsonValue())) for one in frame.schema.fields])
    if wrong is not None:
        raise wrong
    found = [(check, rows_of(frame.where(failing(check)))) for check in checks]
    found += [(check, rows) for check in task.checks for rows in _of_table(check, frame, inputs)]
    return {check.text: rows for check, rows in found if rows or check.kind == "row_count"}


def _of_table(
    check: Check, frame: "DataFrame", inputs: "Mapping[TableName, DataFrame]"
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows that are to blame; for a wrong number of rows that is all of them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    given = dict(check.arguments)
    if check.kind == "unique":
        names = [F.col(column(name)) for name in check.columns]
        times = F.count(F.lit(1)).over(Window.partitionBy(*names))
        is_known = reduce(lambda one, other: one & other, (name.isNotNull() for name in names))
        counted = frame.withColumn(_TIMES, F.when(is_known, times))
        yield rows_of(counted.where(f"`{_TIMES}` > 1").drop(_TIMES))
    elif check.kind == "references" and TableName.stored(str(given["table"])) in inputs:
        other = inputs[TableName.stored(str(given["table"]))].select(F.col(column(str(given["column"]))).alias(_THEIRS))
        mine = F.col(column(check.columns[0]))
        yield rows_of(frame.where(mine.isNotNull()).join(other, mine == F.col(f"`{_THEIRS}`"), "left_anti"))
    elif check.kind == "row_count":
        rows = rows_of(frame)
        if not given.get("min", 0) <= len(rows) <= given.get("max", len(rows)):
            yield rows
