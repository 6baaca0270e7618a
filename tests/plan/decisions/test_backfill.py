"""Slices of days that are asked for, although nothing changed: what a plan says, as text."""

import datetime as dt
from dataclasses import replace

import pytest

from runnel.errors import Mistake
from runnel.model.change_size import VersionSize
from runnel.model.date_range import DateSlices
from runnel.model.slice_key import ChangedSlice
from runnel.plan.date_range import parse_chunk_days, parse_date_range
from tests.plan.factories import Known, files, flow, lines, name, planned, task

ORDERS = files("ods.orders")
DAY = task("dws.day", "ods.orders", by=("day",))
WEEK = task("dws.week", "dws.day", by=("day",))
SELLER = task("dws.seller", "dws.day")
SHOP = flow(ORDERS, DAY, WEEK, SELLER)
TASKS = ("dws.day", "dws.week", "dws.seller")
WEEK_1 = parse_date_range("2026-01-01", "2026-01-03")
KEYS = tuple((day,) for day in WEEK_1.dates)
ASKED = "requested by backfill, 2026-01-01 to 2026-01-03"


def known(slices: int = 10) -> Known:
    """Return a lake in which everything was computed, with so many slices by day."""
    facts = Known().has("ods.orders", size=VersionSize(1000, 8000, 10))
    facts.has_columns[name("ods.orders")] = ("id", "day")
    for made in (DAY, WEEK, SELLER):
        facts.computed(made)
        facts.sizes[made.table] = VersionSize(10, 800, 1)
        facts.has_columns[made.table] = ("day", "n")
    facts.kept = [replace(each, slices=slices) if each.table != SELLER.table else each for each in facts.kept]
    facts.days = {made.table: DateSlices("day", 3, KEYS) for made in (DAY, WEEK)}
    return facts


def test_asked_days_and_everything_downstream() -> None:
    plan = planned(SHOP, known(), *TASKS, days=WEEK_1)
    assert lines(plan) == [
        f"dws.day slices: 3 of 10, {ASKED}",
        f"dws.seller ~full: {ASKED}; it has no slices by date",
        f"dws.week ~slices: 3 of 10, {ASKED}",
    ]
    day = plan.steps[0]
    assert (day.rows, day.bytes, day.slices and day.slices.keys) == (300, 2400, KEYS)
    assert plan.jvm


def test_later_chunks_leave_tasks_without_dates_alone() -> None:
    later = parse_date_range("2025-12-29", "2026-01-03").chunks(3)[1]
    assert lines(planned(SHOP, known(), *TASKS, days=later)) == [
        f"dws.day slices: 3 of 10, {ASKED}",
        "dws.seller ~skip: computed in full with the first chunk; again only if its inputs change",
        f"dws.week ~slices: 3 of 10, {ASKED}",
    ]


def test_slices_that_changed_anyway_are_computed_too() -> None:
    facts = known()
    facts.moved("ods.orders", rows_added=5, files_added=1)
    facts.changed[name("ods.orders")] = (ChangedSlice((dt.date(2026, 1, 20),), 5),)
    plan = planned(SHOP, facts, "dws.day", days=WEEK_1)
    assert lines(plan) == [
        f"dws.day slices: 4 of 10, {ASKED}; 1 of 10, ods.orders gained 5 rows on 2026-01-20",
    ]
    assert plan.steps[0].slices and plan.steps[0].slices.keys == (*KEYS, (dt.date(2026, 1, 20),))


CASES = {
    "most of them": (known(slices=4), {}, f"3 of 4, {ASKED}: that is most of them"),
    "not computed yet": (Known().has("ods.orders"), {}, "not computed yet"),
    "its code changed": (known(), {"dws.day": "b"}, "its code changed at flows/shop.py:31"),
}


@pytest.mark.parametrize(("facts", "edited", "expected"), CASES.values(), ids=CASES)
def test_what_is_computed_in_full(facts: Known, edited: dict[str, str], expected: str) -> None:
    assert lines(planned(SHOP, facts, "dws.day", edited=edited, days=WEEK_1)) == [f"dws.day full: {expected}"]


WRONG = {
    "order": (
        lambda: parse_date_range("2026-01-02", "2026-01-01"),
        "BACKFILL_ORDER",
        "--from 2026-01-02 is after --to",
    ),
    "no date": (
        lambda: parse_date_range("yesterday", "2026-01-01"),
        "BACKFILL_DATE",
        "--from 'yesterday' is not a date",
    ),
    "no such day": (lambda: parse_date_range("2026-01-01", "2026-02-30"), "BACKFILL_DATE", "--to '2026-02-30'"),
    "hours": (lambda: parse_chunk_days("36 hours"), "BACKFILL_CHUNK", "'36 hours' is not a number of days"),
    "no unit": (lambda: parse_chunk_days("7"), "BACKFILL_CHUNK", "'7' is not"),
    "nothing": (lambda: parse_chunk_days("0d"), "BACKFILL_CHUNK", "'0d' is not"),
}


@pytest.mark.parametrize(("call", "code", "text"), WRONG.values(), ids=WRONG)
def test_wrong_days(call, code: str, text: str) -> None:
    with pytest.raises(Mistake) as caught:
        call()
    assert caught.value.code == code and text in caught.value.what and caught.value.fix


def test_chunks() -> None:
    chunks = parse_date_range("2026-01-01", "2026-01-08").chunks(parse_chunk_days("3 days"))
    assert [(str(days), days.is_start) for days in chunks] == [
        ("2026-01-01 to 2026-01-03", True),
        ("2026-01-04 to 2026-01-06", False),
        ("2026-01-07 to 2026-01-08", False),
    ]
    assert parse_date_range("2026-01-01", "2026-01-01").chunks(None) == (parse_date_range("2026-01-01", "2026-01-01"),)
