"""Slices or full: decided from the files that moved, with a reason that names the slices."""

import datetime as dt

import pytest

from runnel.model.change_size import VersionSize
from runnel.model.slice_key import ChangedSlice, union_keys
from runnel.plan.slices import (
    SliceSelection,
    add_following_keys,
    add_preceding_keys,
    describe_slices,
    slice_expressions,
)
from runnel.plan.steps import PlanStep
from tests.plan.factories import Known, decided, flow, lines, manual, name, planned, task

ORDERS, DAY = "ods.orders", task("dws.day", "ods.orders", by=("day",))
D = [dt.date(2026, 1, day) for day in range(1, 11)]


def known(made=DAY, *, columns: tuple[str, ...] = ("id", "Day", "amount"), of: int | None = 10) -> Known:
    """Return facts about a task that was computed once, with this many slices."""
    facts = Known().has(ORDERS, size=VersionSize(1000, 10_000, 10))
    for table in made.input_tables:
        facts.has(str(table), size=VersionSize(1000, 10_000, 10))
        facts.has_columns[table] = columns
    facts.computed(made)
    kept = facts.kept[-1]
    facts.kept[-1] = type(kept)(**{**kept.__dict__, "slices": of, "rows": 70})
    return facts


def moved(facts: Known, *slices: ChangedSlice, table: str = ORDERS, **movement) -> Known:
    facts.moved(table, **({"rows_added": 1, "files_added": 1} | movement))
    if slices:
        facts.changed[name(table)] = slices
    return facts


def shown(step: PlanStep) -> str:
    return f"{step.action}: {step.reason}"


def test_files_that_tell_their_slices_are_named_with_an_estimate() -> None:
    step = decided(DAY, moved(known(), ChangedSlice((D[1],), 1204), ChangedSlice((D[6],), 0, 3)))
    assert shown(step) == ("slices: 2 of 10, ods.orders gained 1,204 rows on 2026-01-02 and lost 3 on 2026-01-07")
    assert step.slices == SliceSelection(((D[1],), (D[6],)), 10)
    assert (step.rows, step.bytes) == (200, 2000)
    assert step.json()["slices"] == {"changed": 2, "of": 10, "keys": ["2026-01-02", "2026-01-07"]}


@pytest.mark.parametrize(
    ("movement", "slices", "expected"),
    [
        ({}, (), "slices: ods.orders gained 1 row in 1 file; its slices are found first"),
        ({"rows_added": 700}, (), "full: ods.orders gained 700 rows in 1 file; that is most of it"),
        (
            {"columns_added": ("x",)},
            (ChangedSlice((D[0],), 1),),
            "full: ods.orders gained the column `x` and gained 1 row in 1 file",
        ),
        (
            {"is_known": False},
            (ChangedSlice((D[0],), 1),),
            "full: the version of ods.orders last used is gone (retention)",
        ),
    ],
)
def test_what_can_not_be_named_is_looked_for_or_computed_in_full(movement: dict, slices: tuple, expected: str) -> None:
    assert shown(decided(DAY, moved(known(), *slices, **movement))) == expected


def test_most_slices_are_computed_as_all() -> None:
    step = decided(DAY, moved(known(), *(ChangedSlice((day,), 1) for day in D[:7])))
    assert step.action == "full"
    assert step.reason.startswith("ods.orders gained 1 row in 1 file; 7 of 10, ods.orders gained 1 row on 2026-01-01")
    assert step.reason.endswith("and changed in 4 more: that is most of them")


def test_slices_that_changed_are_counted_against_those_that_a_full_computation_reads() -> None:
    facts = moved(known(of=5), *(ChangedSlice((day,), 1) for day in D[:4]))
    assert decided(DAY, facts).action == "full"
    facts.slice_counts[name(ORDERS)] = 1000
    step = decided(DAY, facts)
    assert step.action == "slices" and step.reason.startswith("4 of 1,000, ods.orders gained 1 row on 2026-01-01")
    assert step.slices is not None and step.slices.total == 1000 and step.rows == 4


def test_an_input_without_the_key_concerns_all() -> None:
    step = decided(DAY, moved(known(columns=("id",)), ChangedSlice((D[0],), 1)))
    assert shown(step) == "full: ods.orders gained 1 row in 1 file; it has no `day` to split slices by"


def test_a_reference_alone_changes_nothing_and_later_does_not_hinder() -> None:
    made = task("dws.day", ORDERS, "ods.rates", by=("day",), reference=("rates",))
    facts = moved(known(made), table="ods.rates")
    assert decided(made, facts).action == "skip"
    assert decided(made, moved(facts, ChangedSlice((D[0],), 1))).action == "slices"


def test_lookback_counts_on_to_the_slices_that_read_it() -> None:
    made = task("dws.week", ORDERS, by=("day",), lookback=(("orders", 2),))
    step = decided(made, moved(known(made), ChangedSlice((D[1],), 1), ChangedSlice((D[2],), 1)))
    assert step.slices is not None and step.slices.keys == ((D[1],), (D[2],), (D[3],), (D[4],))


def test_a_key_beyond_its_slice_is_said_to_be_read() -> None:
    inside = task("dws.day", ORDERS, by=("day",), key=("day", "id"))
    beyond = task("dws.day", ORDERS, by=("day",), key=("id",))
    assert "unique" not in decided(inside, moved(known(inside), ChangedSlice((D[0],), 1))).reason
    reason = decided(beyond, moved(known(beyond), ChangedSlice((D[0],), 1))).reason
    assert reason.endswith("; reads the key id of 70 rows to check that it is unique")


def test_rows_are_cheaper_where_a_rowwise_task_only_gains() -> None:
    made = task("dwd.a", ORDERS, by=("day",), rowwise=True)
    assert decided(made, moved(known(made), ChangedSlice((D[0],), 1))).action == "rows"
    assert (
        decided(made, moved(known(made), ChangedSlice((D[0],), 1), files_removed=1, rows_removed=1)).action == "slices"
    )


def test_below_slices_slices_are_expected() -> None:
    below = task("ads.month", "dws.day", by=("day",))
    facts = known(DAY).has("dws.day")
    facts.has_columns[DAY.table] = ("day", "revenue")
    facts.computed(DAY)
    facts.computed(below)
    plan = planned(flow(manual(ORDERS), DAY, below), moved(facts, ChangedSlice((D[0],), 1)))
    assert lines(plan)[1:] == [
        "dws.day slices: 1, ods.orders gained 1 row on 2026-01-01",
        "ads.month ~slices: dws.day is computed; its slices are found first",
    ]


@pytest.mark.parametrize(
    ("columns", "by_input", "expected"),
    [
        (("DAY", "x"), (), ("`day`",)),
        (("x",), (), None),
        (("x",), (("orders", "to_date(ts)"),), ("to_date(ts)",)),
        (("day",), (("orders", "to_date(ts)"),), ("to_date(ts)",)),
    ],
)
def test_what_names_a_slice(columns: tuple, by_input: tuple, expected: object) -> None:
    assert slice_expressions(task("a.b", ORDERS, by=("day",), by_input=by_input), name(ORDERS), columns) == expected


def test_keys_are_counted_on_and_back_null_stays() -> None:
    assert add_following_keys([(None,), (3,)], 1) == ((None,), (3,), (4,))
    assert add_preceding_keys([(D[1],)], 1) == ((D[1],), (D[0],))
    assert add_following_keys([(dt.datetime(2026, 1, 1),)], 1) is None and add_following_keys([("a", 1)], 1) is None
    assert union_keys([[(2,), (None,)], [(1,), (2,)]]) == ((1,), (2,), (None,))


def test_many_slices_are_summed_up_and_rewritten_ones_say_so() -> None:
    found = [
        ChangedSlice(("a",), 5, 5),
        ChangedSlice(("b",), 1, 0),
        ChangedSlice(("c",), 0, 1),
        ChangedSlice(("d",), 1),
        ChangedSlice((None,), 1),
    ]
    assert describe_slices({name(ORDERS): found}, 5, None) == (
        "5, ods.orders changed in a, gained 1 row in b, lost 1 in c and changed in 2 more"
    )


def test_movement_is_not_asked_for_references() -> None:
    made = task("dws.day", ORDERS, "ods.rates", by=("day",), reference=("rates",))
    facts = known(made).has("ods.rates", "2")  # no movement is known for it: asking would raise
    assert decided(made, facts).action == "skip"
