"""Find the rows of a test's result frame that fail the task's checks."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from runnel.declare.model.column_types import Column, parse_json_type
from runnel.declare.model.flow import Check, Task
from runnel.declare.sql.literals import quote_column
from runnel.internal_names import internal_column
from runnel.names import TableName
from runnel.run.checks.row_checks import failing_sql, list_row_checks, refuse_invalid_checks
from runnel.testing.literal_rows import collect_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COUNT_COLUMN, _REFERENCED_COLUMN = (internal_column(word) for word in ("times", "theirs"))


def find_failing_rows(
    task: Task, frame: "DataFrame", inputs: "Mapping[TableName, DataFrame]"
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that fail each check, by the check's text; checks that pass are left out.

    `fresh` depends on the clock, and `references` on a table that the test may not provide: then they count as passed.
    """
    checks = list_row_checks(task)
    columns = [Column(field.name, parse_json_type(field.dataType.jsonValue())) for field in frame.schema.fields]
    refuse_invalid_checks(frame, checks, columns)
    rows_by_check = [(check, collect_rows(frame.where(failing_sql(check)))) for check in checks]
    rows_by_check += [(check, rows) for check in task.checks for rows in _find_failing_table_rows(check, frame, inputs)]
    return {check.text: rows for check, rows in rows_by_check if rows or check.kind == "row_count"}


def _find_failing_table_rows(
    check: Check, frame: "DataFrame", inputs: "Mapping[TableName, DataFrame]"
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows that fail a table check; for a wrong row count these are all rows."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    arguments = dict(check.arguments)
    if check.kind == "unique":
        names = [F.col(quote_column(name)) for name in check.columns]
        row_count = F.count(F.lit(1)).over(Window.partitionBy(*names))
        has_no_null = reduce(lambda left, referenced: left & referenced, (name.isNotNull() for name in names))
        counted = frame.withColumn(_COUNT_COLUMN, F.when(has_no_null, row_count))
        yield collect_rows(counted.where(f"`{_COUNT_COLUMN}` > 1").drop(_COUNT_COLUMN))
    elif check.kind == "references" and TableName.parse_unchecked(str(arguments["table"])) in inputs:
        referenced = inputs[TableName.parse_unchecked(str(arguments["table"]))].select(
            F.col(quote_column(str(arguments["column"]))).alias(_REFERENCED_COLUMN)
        )
        own_column = F.col(quote_column(check.columns[0]))
        yield collect_rows(
            frame.where(own_column.isNotNull()).join(
                referenced, own_column == F.col(f"`{_REFERENCED_COLUMN}`"), "left_anti"
            )
        )
    elif check.kind == "row_count":
        rows = collect_rows(frame)
        if not arguments.get("min", 0) <= len(rows) <= arguments.get("max", len(rows)):
            yield rows
