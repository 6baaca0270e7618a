"""Checks of rows and of tables: what they find, what they stop, and what they set aside."""

import json
from dataclasses import replace
from typing import Any

import pytest

from runnel.declare.model.flow import Check
from runnel.errors import Mistake, RunnelError
from runnel.lake.leases import slots
from runnel.names import TableName
from runnel.run.checks.check_verdict import judge_findings
from runnel.run.checks.row_checks import CheckFinding, list_row_checks
from runnel.run.checks.table_checks import run_table_checks
from runnel.run.task.refresh_table import BaseVersion, apply_row_changes, replace_all_rows
from runnel.run.task_context import TaskContext
from tests.run.task_context import ASIDE, TABLE, frame, later, row, rows_of, task_with, whole

ORDERS = "id long, amount long"
SELLERS = TableName("dws", "sellers")


@pytest.fixture
def sellers(context: TaskContext) -> TaskContext:
    """Make a table to refer to: ids 1 and 2."""
    made = frame(context, "id long, name string", (1, "a"), (2, "b"))
    location = replace_all_rows(context, task_with(), made, None).head.location
    slots.place_tables(context.store.db, context.slot, {SELLERS: location, TABLE: None})
    return context


OF_TABLES = {
    "unique": (whole("unique", "id"), 1, "id 3 3 times"),
    "unique, nulls differ": (whole("unique", "amount"), 1, "amount 9 twice"),
    "unique together": (whole("unique", "id", "amount"), 1, "id 3, amount 9 twice"),
    "refers": (whole("references", "id", table="dws.sellers", column="id"), 3, "id 3"),
    "refers, null to nothing": (whole("references", "amount", table="dws.sellers", column="id"), 2, "amount 9"),
    "too few rows": (whole("row_count", min=6), 1, "it has 5 rows"),
    "too many rows": (whole("row_count", min=1, max=4), 1, "it has 5 rows"),
    "rows enough": (whole("row_count", min=5, max=5), 0, None),
    "old": (whole("fresh", "day", within_seconds=86_400), 1, "the newest is 2026-01-05"),
    "fresh": (whole("fresh", "day", within_seconds=10 * 86_400), 0, None),
    "never": (whole("fresh", "never", within_seconds=86_400), 1, "it has no value"),
}


def test_checks_of_tables_are_one_query(sellers: TaskContext) -> None:
    given = [(1, None), (2, None), (3, 9), (3, 9), (3, None)]
    made = frame(sellers, ORDERS, *given).selectExpr("*", "date '2026-01-05' as day", "timestamp(null) as never")
    made.createOrReplaceTempView("checked")
    found = run_table_checks(sellers, "checked", [check for check, *_ in OF_TABLES.values()])
    assert dict(zip(OF_TABLES, ((one.failed, one.example) for one in found), strict=True)) == {
        name: (failed, example) for name, (_, failed, example) in OF_TABLES.items()
    }


UNREADABLE = {
    "unknown column": (whole("unique", "idd"), "names `idd`, which is no column; close: `id`"),
    "unknown table": (whole("references", "id", table="dws.nowhere", column="id"), "there is no such table yet"),
    "its column": (whole("references", "id", table="dws.sellers", column="nmae"), "does not have; close: `name`"),
    "no time": (whole("fresh", "m", within_seconds=9), "can't be read"),
}


@pytest.mark.parametrize(("check", "text"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_check_that_cannot_be_read_writes_nothing(sellers: TaskContext, check: Check, text: str) -> None:
    made = frame(sellers, ORDERS, (1, 1)).selectExpr("*", "map('a', 1) as m")
    with pytest.raises(Mistake) as caught:
        replace_all_rows(sellers, task_with(check), made, None)
    assert caught.value.code == "CHECK_INVALID" and text in caught.value.what and caught.value.at == "flows/made.py:11"
    assert slots.read_location(sellers.store.db, sellers.slot, TABLE) is None


def test_every_failing_check_is_told_and_the_table_stays(context: TaskContext) -> None:
    before = replace_all_rows(context, task_with(), frame(context, ORDERS, (1, 1)), None)
    checks = (row("amount > 0"), row("id > 1", "warn", 10), whole("unique", "id"), whole("row_count", min=2))
    with pytest.raises(RunnelError) as caught:
        replace_all_rows(context, task_with(*checks), frame(context, ORDERS, (1, 0), (1, -5), (2, None)), before.head)
    assert str(caught.value).splitlines() == [
        "CHECK_FAILED: task `dws.made`: 2 checks failed",
        '    amount > 0: 2 rows failed, such as {"id":1,"amount":-5} (flows/made.py:9)',
        '    id > 1: 2 rows failed, such as {"id":1,"amount":-5} (flows/made.py:10)',
        "    unique(id): 1 value more than once, such as id 1 twice (flows/made.py:11)",
        "  at flows/made.py:9",
        '  fix: correct the task or its input; on_fail="quarantine" sets such rows aside, on_fail="warn" only warns',
    ]
    assert caught.value.exit_code == 1
    assert slots.read_location(context.store.db, context.slot, TABLE) == before.head.location


def test_rows_that_are_too_old_lead_to_the_sources() -> None:
    check = whole("fresh", "ts", within_seconds=9)
    inputs = tuple((name, TableName("ods", name)) for name in ("orders", "clicks"))
    with pytest.raises(RunnelError) as caught:
        judge_findings(
            replace(task_with(check), inputs=inputs), [CheckFinding(check, 1, "the newest is 2026-01-02 00:00:00")]
        )
    assert str(caught.value).splitlines() == [
        "CHECK_FAILED: task `dws.made`: 1 check failed",
        "    fresh(ts, within_seconds=9): the newest is 2026-01-02 00:00:00 (flows/made.py:11)",
        "  at flows/made.py:11",
        "  fix: `runnel plan -s +ods.orders -s +ods.clicks` shows whether its sources have delivered anything new; "
        'on_fail="warn" only warns',
    ]


def test_a_warning_goes_on() -> None:
    check = row("id > 1", "warn")
    assert judge_findings(task_with(check), [CheckFinding(check, 1, "{}")]) == ("id > 1: 1 row failed, such as {}",)
    assert judge_findings(task_with(check), [CheckFinding(check, 0)]) == ()


def test_a_column_declared_as_not_null_is_checked(context: TaskContext) -> None:
    task = task_with(schema="id long not null, amount long")
    assert [check.text for check in list_row_checks(task)] == ["id not null"]
    with pytest.raises(RunnelError, match="id not null: 1 row failed"):
        replace_all_rows(context, task, frame(context, ORDERS, (None, 1)), None)


def aside(context: TaskContext, location: str) -> list[tuple[Any, ...]]:
    return [(json.loads(raw), reason, file, run) for raw, reason, file, run, _ in rows_of(context, location)]


BAD = [(1, 5), (2, -1), (3, None), (-4, -9), (-5, 1)]


def test_bad_rows_are_dropped_or_put_into_quarantine(context: TaskContext) -> None:
    task = task_with(row("amount >= 0", "quarantine"), row("id > 0", "drop"), row("id > -5 or amount = 1"))
    made = replace_all_rows(context, task, frame(context, ORDERS, *BAD), None)
    assert rows_of(context, made.head.location) == [(1, 5), (3, None)]
    assert (made.rows, made.written_rows, made.quarantined_rows) == (2, 2, 3) and made.quarantine is not None
    assert aside(context, made.quarantine.location) == [
        ({"id": -4, "amount": -9}, "amount >= 0; id > 0", None, "run-1"),
        ({"id": 2, "amount": -1}, "amount >= 0", None, "run-1"),
    ]
    assert [text.partition(":")[0] for text in made.warnings] == ["put into `quarantine.dws_made`", "dropped"]
    assert (
        made.head.content
        == replace_all_rows(context, task, frame(context, ORDERS, (1, 5), (3, None)), None).head.content
    )


def test_a_full_refresh_replaces_what_is_in_quarantine(context: TaskContext) -> None:
    task = task_with(row("amount >= 0", "quarantine"))
    first = replace_all_rows(context, task, frame(context, ORDERS, (1, 5), (2, -1)), None)
    second = later(context, first.quarantine)
    same = replace_all_rows(second, task, frame(second, ORDERS, (1, 5), (2, -1)), first.head)
    assert (same.head, same.quarantine) == (first.head, first.quarantine)
    other = replace_all_rows(second, task, frame(second, ORDERS, (1, 5), (3, -1)), first.head)
    assert other.quarantine is not None and len(aside(second, other.quarantine.location)) == 1
    good = replace_all_rows(second, task, frame(second, ORDERS, (1, 5)), first.head)
    assert good.quarantine is not None and aside(second, good.quarantine.location) == []
    assert slots.read_location(second.store.db, second.slot, ASIDE) == good.quarantine.location


def test_rows_that_come_and_go_add_to_quarantine_and_leave_it(context: TaskContext) -> None:
    task = task_with(row("amount >= 0", "quarantine"), key=("id",))
    first = replace_all_rows(context, task, frame(context, ORDERS, (1, 5), (2, -1), (3, -1)), None)
    second = later(context, first.quarantine)
    more = apply_row_changes(
        second, task, frame(second, ORDERS, (4, 4), (5, -5)), None, BaseVersion(first.head, first.tally)
    )
    assert rows_of(second, more.head.location) == [(1, 5), (4, 4)] and more.quarantined_rows == 1
    assert more.quarantine is not None
    assert sorted(raw["id"] for raw, *_ in aside(second, more.quarantine.location)) == [2, 3, 5]
    third = later(context, more.quarantine)
    gone = frame(third, ORDERS, (1, 5), (2, -1))
    less = apply_row_changes(third, task, frame(third, ORDERS, (2, 2)), gone, BaseVersion(more.head, more.tally))
    assert rows_of(third, less.head.location) == [(2, 2), (4, 4)] and less.quarantine is not None
    assert sorted(raw["id"] for raw, *_ in aside(third, less.quarantine.location)) == [3, 5]
