"""Checks of whole tables: unique, references, row_count, fresh. All of a task's are one query."""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Check
from runnel.declare.sql.literals import column, literal
from runnel.errors import Mistake, nearest
from runnel.names import TableName
from runnel.phase_timer import phase
from runnel.run.checks.row_checks import Finding, unreadable
from runnel.run.task_context import timestamp_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from runnel.run.task_context import Context


@phase("check")
def table_checks(context: "Context", target: str, checks: Sequence[Check]) -> tuple[Finding, ...]:
    """Return how the checks of a table went; `target` is what Spark calls it."""
    if not checks:
        return ()
    parts = [f"SELECT {at} AS at, * FROM ({_sql(context, check, target)})" for at, check in enumerate(checks)]
    rows = context.session.sql(" UNION ALL ".join(parts)).collect()
    return tuple(_finding(checks[row["at"]], row) for row in sorted(rows, key=lambda row: int(row["at"])))


@phase("check")
def refuse_unreadable(context: "Context", frame: "DataFrame", checks: Sequence[Check]) -> None:
    """Raise CHECK_INVALID for the first check of a table that can't be read; `frame` is what the table will hold."""
    from pyspark.errors import AnalysisException

    if not checks:
        return
    view = f"runnel_checked_{secrets.token_hex(4)}"
    frame.createTempView(view)
    try:
        for check in checks:
            try:
                context.session.sql(_sql(context, check, view))
            except AnalysisException as error:
                raise _blamed(context, check, error, frame.columns) from error
    finally:
        with suppress(Exception):  # what went wrong first is what is told
            context.session.catalog.dropTempView(view)


def _sql(context: "Context", check: Check, target: str) -> str:
    """Return the query of a check: one row of `failed`, `number` and `value`."""
    given = dict(check.arguments)
    if check.kind == "unique":
        return _unique(check, target)
    if check.kind == "references":
        other = context.identifier(TableName.parse(str(given["table"])))
        return _references(check, target, other, str(given["column"]))
    if check.kind == "row_count":
        return _row_count(given.get("min"), given.get("max"), target)
    return _fresh(check, target, context.now - timedelta(seconds=float(given["within_seconds"])))


def _unique(check: Check, target: str) -> str:
    """Return the query for values that stand more than once, with one that does so most often; nulls differ."""
    names = [column(name) for name in check.columns]
    labels = [f"{literal(name + ' ')} || string({column(name)})" for name in check.columns]
    groups = (
        f"SELECT count(1) AS times, concat_ws(', ', {', '.join(labels)}) AS value FROM {target} "
        f"WHERE {' AND '.join(f'{name} IS NOT NULL' for name in names)} GROUP BY {', '.join(names)} HAVING count(1) > 1"
    )
    most = "max(struct(times, value))"
    return f"SELECT count(1) AS failed, {most}.times AS number, {most}.value AS value FROM ({groups})"


def _references(check: Check, target: str, other: str, other_column: str) -> str:
    """Return the query for rows whose value is not in another table; null refers to nothing."""
    return (
        "SELECT count(1) AS failed, bigint(null) AS number, min(string(mine)) AS value FROM "
        f"(SELECT {column(check.columns[0])} AS mine FROM {target}) LEFT ANTI JOIN "
        f"(SELECT {column(other_column)} AS theirs FROM {other}) ON mine = theirs WHERE mine IS NOT NULL"
    )


def _row_count(least: int | None, most: int | None, target: str) -> str:
    bounds = [f"count(1) < {least}"] if least is not None else []
    bounds += [f"count(1) > {most}"] if most is not None else []
    return f"SELECT bigint({' OR '.join(bounds)}) AS failed, count(1) AS number, string(null) AS value FROM {target}"


def _fresh(check: Check, target: str, oldest: datetime) -> str:
    newest = f"max({column(check.columns[0])})"
    is_old = f"coalesce(try_cast({newest} AS timestamp) < {timestamp_sql(oldest)}, true)"
    return f"SELECT bigint({is_old}) AS failed, bigint(null) AS number, string({newest}) AS value FROM {target}"


def _finding(check: Check, row: "Row") -> Finding:
    failed, number, value = row["failed"], row["number"], row["value"]
    if not failed:
        return Finding(check, 0)
    if check.kind == "unique":
        return Finding(check, failed, f"{value} {'twice' if number == 2 else f'{number:,} times'}")
    if check.kind == "references":
        return Finding(check, failed, f"{check.columns[0]} {value}")
    if check.kind == "row_count":
        return Finding(check, failed, f"it has {number:,} row{'' if number == 1 else 's'}")
    return Finding(check, failed, f"the newest is {value}" if value else "it has no value")


def _blamed(context: "Context", check: Check, error: Exception, columns: Sequence[str]) -> Mistake:
    """Return the mistake of a check, which may be about the table that it refers to."""
    if check.kind != "references":
        return unreadable(check, error, columns)
    given = dict(check.arguments)
    table, at = str(given["table"]), str(check.place) if check.place else None
    known = _columns(context, TableName.parse(table))
    if known is None:
        what = f"the check `{check.text}` refers to `{table}`, but there is no such table yet"
        return Mistake("CHECK_INVALID", what, at=at, fix="compute that table first, or correct its name")
    if str(given["column"]).lower() not in [name.lower() for name in known]:
        close = nearest(str(given["column"]), known)
        what = f"the check `{check.text}` refers to a column that `{table}` does not have"
        return Mistake(
            "CHECK_INVALID",
            what + (f"; close: `{close}`" if close else ""),
            at=at,
            fix=f"its columns: {', '.join(known)}",
        )
    return unreadable(check, error, columns)


def _columns(context: "Context", table: TableName) -> list[str] | None:
    from pyspark.errors import AnalysisException

    try:
        return context.session.table(context.identifier(table)).columns
    except AnalysisException:
        return None
