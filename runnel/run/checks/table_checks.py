"""Run checks of whole tables: unique, references, row_count, fresh. One query for all checks of a task."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Check
from runnel.declare.sql.literals import format_literal, quote_column
from runnel.errors import Mistake, did_you_mean, plural
from runnel.names import TableName
from runnel.phase_timer import measure_phase
from runnel.run.checks.row_checks import CheckFinding, unreadable_check_error
from runnel.run.task_context import timestamp_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from runnel.run.task_context import TaskContext


@measure_phase("check")
def run_table_checks(context: "TaskContext", target: str, checks: Sequence[Check]) -> tuple[CheckFinding, ...]:
    """Return the findings of the checks of a table; `target` is its identifier in Spark."""
    if not checks:
        return ()
    queries = [
        f"SELECT {index} AS at, * FROM ({_build_query(context, check, target)})" for index, check in enumerate(checks)
    ]
    rows = context.session.sql(" UNION ALL ".join(queries)).collect()
    return tuple(_read_finding(checks[row["at"]], row) for row in sorted(rows, key=lambda row: int(row["at"])))


@measure_phase("check")
def find_unreadable_checks(context: "TaskContext", frame: "DataFrame", checks: Sequence[Check]) -> list[Mistake]:
    """Return CHECK_INVALID for each check of a table that can't be read; `frame` is what the table will hold."""
    from pyspark.errors import AnalysisException

    if not checks:
        return []
    view = f"runnel_checked_{secrets.token_hex(4)}"
    frame.createTempView(view)
    mistakes: list[Mistake] = []
    try:
        for check in checks:
            try:
                context.session.sql(_build_query(context, check, view))
            except AnalysisException as error:
                mistakes.append(_explain_unreadable_check(context, check, error, frame.columns))
    finally:
        with suppress(Exception):  # the first error is the one to report
            context.session.catalog.dropTempView(view)
    return mistakes


def _build_query(context: "TaskContext", check: Check, target: str) -> str:
    """Return the query of a check, which gives one row of `failed`, `number` and `value`."""
    arguments = dict(check.arguments)
    if check.kind == "unique":
        return _build_unique_query(check, target)
    if check.kind == "references":
        other_table = context.identifier(TableName.parse(str(arguments["table"])))
        return _build_references_query(check, target, other_table, str(arguments["column"]))
    if check.kind == "row_count":
        return _build_row_count_query(arguments.get("min"), arguments.get("max"), target)
    return _build_freshness_query(check, target, context.now - timedelta(seconds=float(arguments["within_seconds"])))


def _build_unique_query(check: Check, target: str) -> str:
    """Return the query for duplicate values, with the most frequent one; nulls are never duplicates."""
    names = [quote_column(name) for name in check.columns]
    labels = [f"{format_literal(name + ' ')} || string({quote_column(name)})" for name in check.columns]
    groups = (
        f"SELECT count(1) AS times, concat_ws(', ', {', '.join(labels)}) AS value FROM {target} "
        f"WHERE {' AND '.join(f'{name} IS NOT NULL' for name in names)} GROUP BY {', '.join(names)} HAVING count(1) > 1"
    )
    most = "max(struct(times, value))"
    return f"SELECT count(1) AS failed, {most}.times AS number, {most}.value AS value FROM ({groups})"


def _build_references_query(check: Check, target: str, other_table: str, other_column: str) -> str:
    """Return the query for rows whose value is not in another table; nulls are ignored."""
    return (
        "SELECT count(1) AS failed, bigint(null) AS number, min(string(mine)) AS value FROM "
        f"(SELECT {quote_column(check.columns[0])} AS mine FROM {target}) LEFT ANTI JOIN "
        f"(SELECT {quote_column(other_column)} AS theirs FROM {other_table}) ON mine = theirs WHERE mine IS NOT NULL"
    )


def _build_row_count_query(least: int | None, most: int | None, target: str) -> str:
    bounds = [f"count(1) < {least}"] if least is not None else []
    bounds += [f"count(1) > {most}"] if most is not None else []
    return f"SELECT bigint({' OR '.join(bounds)}) AS failed, count(1) AS number, string(null) AS value FROM {target}"


def _build_freshness_query(check: Check, target: str, oldest: datetime) -> str:
    newest = f"max({quote_column(check.columns[0])})"
    is_old = f"coalesce(try_cast({newest} AS timestamp) < {timestamp_sql(oldest)}, true)"
    return f"SELECT bigint({is_old}) AS failed, bigint(null) AS number, string({newest}) AS value FROM {target}"


def _read_finding(check: Check, row: "Row") -> CheckFinding:
    failed, number, value = row["failed"], row["number"], row["value"]
    if not failed:
        return CheckFinding(check, 0)
    if check.kind == "unique":
        return CheckFinding(check, failed, f"{value} {'twice' if number == 2 else f'{number:,} times'}")
    if check.kind == "references":
        return CheckFinding(check, failed, f"{check.columns[0]} {value}")
    if check.kind == "row_count":
        return CheckFinding(check, failed, f"it has {plural(number, 'row')}")
    return CheckFinding(check, failed, f"the newest is {value}" if value else "it has no value")


def _explain_unreadable_check(
    context: "TaskContext", check: Check, error: Exception, columns: Sequence[str]
) -> Mistake:
    """Return the error for an unreadable check, which may be about the table that it references."""
    if check.kind != "references":
        return unreadable_check_error(check, error, columns)
    arguments = dict(check.arguments)
    table, at = str(arguments["table"]), str(check.place) if check.place else None
    table_columns = _list_table_columns(context, TableName.parse(table))
    if table_columns is None:
        what = f"the check `{check.text}` refers to `{table}`, but there is no such table yet"
        return Mistake("CHECK_INVALID", what, at=at, fix="compute that table first, or correct its name")
    if str(arguments["column"]).lower() not in [name.lower() for name in table_columns]:
        what = f"the check `{check.text}` refers to a column that `{table}` does not have"
        return Mistake(
            "CHECK_INVALID",
            what + did_you_mean(str(arguments["column"]), table_columns),
            at=at,
            fix=f"its columns: {', '.join(table_columns)}",
        )
    return unreadable_check_error(check, error, columns)


def _list_table_columns(context: "TaskContext", table: TableName) -> list[str] | None:
    from pyspark.errors import AnalysisException

    try:
        return context.session.table(context.identifier(table)).columns
    except AnalysisException:
        return None
