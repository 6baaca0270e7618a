"""Build Spark SQL for checks of rows, and read its results: how many rows fail, and an example. Computes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.declare.model.column_types import Column
from runnel.declare.model.flow import Check, Task
from runnel.errors import Mistake, did_you_mean, raise_all
from runnel.query.engines.spark_errors import find_condition, find_unknown_column
from runnel.run.content_tally import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REJECTING_ACTIONS = ("drop", "quarantine")
_MOST_SHOWN = 300
JSON_OPTIONS = "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")"


@dataclass(frozen=True)
class CheckFinding:
    """The result of a check: how many rows or values fail, and an example."""

    check: Check
    failed: int
    example: str | None = None

    @classmethod
    def from_metrics(cls, check: Check, values: Mapping[str, Any], index: int) -> "CheckFinding":
        """Return the finding for the check at `index` from the values of `build_check_metrics`."""
        example = values[f"example {index}"]
        return cls(check, int(values[f"failed {index}"]), example[:_MOST_SHOWN] if example else None)


def list_row_checks(task: Task) -> tuple[Check, ...]:
    """Return the checks of a task's rows; a column declared as NOT NULL is one too."""
    required_columns = [column for column in task.options.schema or () if column.required]
    implied_checks = [
        Check("not_null", f"{column.name} not null", (column.name,), f"{quote_name(column.name)} is not null")
        for column in required_columns
    ]
    return (*implied_checks, *(check for check in task.checks if check.is_row_check))


def build_check_metrics(checks: Sequence[Check], columns: Sequence[Column]) -> dict[str, str]:
    """Return the aggregates, by name, that findings are read from. A row fails if its condition is false."""
    aggregates = {}
    example_sql = f"left({row_json_sql(columns)}, {_MOST_SHOWN})"
    for index, check in enumerate(checks):
        aggregates[f"failed {index}"] = f"count_if({failing_sql(check)})"
        aggregates[f"example {index}"] = f"min(CASE WHEN {failing_sql(check)} THEN {example_sql} END)"
    return aggregates


def failing_sql(check: Check) -> str:
    """Return the SQL of whether a row fails; never null."""
    return f"coalesce(NOT ({check.condition}), false)"


def row_json_sql(columns: Sequence[Column]) -> str:
    """Return the SQL of a row as JSON text."""
    return f"to_json(struct({', '.join(quote_name(column.name) for column in columns)}), {JSON_OPTIONS})"


def refuse_invalid_checks(frame: "DataFrame", checks: Sequence[Check], columns: Sequence[Column]) -> None:
    """Raise CHECK_INVALID for the checks that Spark can't read."""
    raise_all(find_invalid_checks(frame, checks, columns))


def find_invalid_checks(frame: "DataFrame", checks: Sequence[Check], columns: Sequence[Column]) -> list[Mistake]:
    """Return an error for each check of rows that Spark can't read."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    mistakes = []
    for check in checks:
        try:
            frame.observe(
                "probe", *(F.expr(sql).alias(name) for name, sql in build_check_metrics([check], columns).items())
            )
        except AnalysisException as error:
            mistakes.append(unreadable_check_error(check, error, [column.name for column in columns]))
    return mistakes


def unreadable_check_error(check: Check, error: Exception, columns: Sequence[str]) -> Mistake:
    """Return the error for a check that Spark can't read."""
    text = str(error)
    at = str(check.place) if check.place else None
    name = find_unknown_column(text)
    if name is not None:
        what = f"the check `{check.text}` names `{name}`, which is no column" + did_you_mean(name, columns)
        return Mistake("CHECK_INVALID", what, at=at, fix=f"its columns: {', '.join(columns)}")
    condition = find_condition(text)
    why = f"{condition[1]} [{condition[0]}]" if condition else text.splitlines()[0]
    fix = (
        "write a condition on the columns of one row, such as revenue >= 0"
        if check.is_row_check
        else "correct the check"
    )
    return Mistake("CHECK_INVALID", f"the check `{check.text}` can't be read: {why[:300]}", at=at, fix=fix)
