"""Checks of rows as Spark SQL: how many rows fail each, and one example. Makes and reads values; computes nothing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.declare.model.column_types import Column
from runnel.declare.model.flow import Check, Task
from runnel.errors import Mistake, nearest
from runnel.query.engines.spark_errors import condition_in
from runnel.run.content_tally import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ASIDE = ("drop", "quarantine")
_MOST_SHOWN = 300
_UNKNOWN = re.compile(r"\[UNRESOLVED_COLUMN[^\]]*\].*? with name (\S+) cannot be resolved")
JSON_OPTIONS = "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")"


@dataclass(frozen=True)
class Finding:
    """How a check went: how many rows, or values, fail it, and one of them."""

    check: Check
    failed: int
    example: str | None = None

    @classmethod
    def read(cls, check: Check, found: Mapping[str, Any], at: int) -> "Finding":
        """Return the finding behind the values of `metrics`."""
        example = found[f"example {at}"]
        return cls(check, int(found[f"failed {at}"]), example[:_MOST_SHOWN] if example else None)


def row_checks(task: Task) -> tuple[Check, ...]:
    """Return the checks of a task's rows; a column declared as NOT NULL is one too."""
    declared = [column for column in task.options.schema or () if column.required]
    implied = [
        Check("not_null", f"{column.name} not null", (column.name,), f"{quoted(column.name)} is not null")
        for column in declared
    ]
    return (*implied, *(check for check in task.checks if check.is_row))


def metrics(checks: Sequence[Check], columns: Sequence[Column]) -> dict[str, str]:
    """Return the aggregates, by name, that findings are read from. A row fails where its condition is false."""
    found = {}
    shown = f"left({row_json(columns)}, {_MOST_SHOWN})"
    for at, check in enumerate(checks):
        found[f"failed {at}"] = f"count_if({failing(check)})"
        found[f"example {at}"] = f"min(CASE WHEN {failing(check)} THEN {shown} END)"
    return found


def failing(check: Check) -> str:
    """Return the SQL of whether a row fails; never null."""
    return f"coalesce(NOT ({check.condition}), false)"


def row_json(columns: Sequence[Column]) -> str:
    """Return the SQL of a row as JSON text."""
    return f"to_json(struct({', '.join(quoted(column.name) for column in columns)}), {JSON_OPTIONS})"


def invalid(frame: "DataFrame", checks: Sequence[Check], columns: Sequence[Column]) -> Mistake | None:
    """Return what is wrong with the first check that Spark can't read, or None where it can read each."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    for check in checks:
        try:
            frame.observe("probe", *(F.expr(sql).alias(name) for name, sql in metrics([check], columns).items()))
        except AnalysisException as error:
            return unreadable(check, error, [column.name for column in columns])
    return None


def unreadable(check: Check, error: Exception, columns: Sequence[str]) -> Mistake:
    """Return the mistake of a check that Spark can't read."""
    text = str(error)
    at = str(check.place) if check.place else None
    unknown = _UNKNOWN.search(text)
    if unknown:
        name = re.findall(r"`((?:[^`]|``)*)`", unknown[1])[-1].replace("``", "`")
        close = nearest(name, columns)
        what = f"the check `{check.text}` names `{name}`, which is no column" + (f"; close: `{close}`" if close else "")
        return Mistake("CHECK_INVALID", what, at=at, fix=f"its columns: {', '.join(columns)}")
    found = condition_in(text)
    why = f"{found[1]} [{found[0]}]" if found else text.splitlines()[0]
    fix = "write a condition on the columns of one row, such as revenue >= 0" if check.is_row else "correct the check"
    return Mistake("CHECK_INVALID", f"the check `{check.text}` can't be read: {why[:300]}", at=at, fix=fix)
