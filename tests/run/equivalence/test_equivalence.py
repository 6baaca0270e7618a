"""The law: what is computed from changes equals what is computed in full, after whatever happened.

Random projects and histories, each from a seed. RUNNEL_LAW_HISTORIES=200 tries more of them, and larger ones;
RUNNEL_LAW_SEED=n repeats one, and RUNNEL_LAW_REDUCE=1 leaves out of it what it does not need to fail.
"""

import datetime as dt
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.run.equivalence.history_machine import Machine, Unlawful
from tests.run.equivalence.mutations import MUTATIONS, planted, thresholds
from tests.run.equivalence.project_model import Source, Task, World
from tests.run.equivalence.random_histories import History, history
from tests.run.equivalence.scenario import play, smallest
from tests.run.equivalence.source_rows import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = os.environ.get("RUNNEL_LAW_HISTORIES")
SEED = os.environ.get("RUNNEL_LAW_SEED")
LONG = bool(MANY) or bool(os.environ.get("RUNNEL_LAW_LONG"))


def chosen(seed: int) -> History:
    return history(seed, tasks=(5, 12), steps=(1, 3)) if LONG else history(seed)


@pytest.mark.cluster
@pytest.mark.timeout(86400 if MANY else 900)
def test_what_is_computed_from_changes_equals_the_whole(spark: "SparkSession") -> None:
    done: Counter[str] = Counter()

    @settings(
        max_examples=1 if SEED else int(MANY or 10),
        deadline=None,
        derandomize=not MANY,
        phases=[Phase.generate],  # a seed can't be made smaller; RUNNEL_LAW_REDUCE makes its history smaller
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(seed=st.integers(0, 2**32 - 1))
    def lawful(seed: int) -> None:
        done.update(actions(int(SEED) if SEED else seed, spark))

    lawful()
    assert SEED or done["slices"] > done["full"] / 4, f"hardly anything was computed by slices: {done}"


def actions(seed: int, spark: "SparkSession") -> Counter[str]:
    """Return what was done in the history of a seed; raise where it broke the law."""
    found = chosen(seed)
    try:
        return play(found, spark).actions
    except Exception as error:
        if os.environ.get("RUNNEL_LAW_REDUCE"):
            pytest.fail(smallest(found, spark))
        again = f"repeat with RUNNEL_LAW_SEED={found.seed}" + (" RUNNEL_LAW_LONG=1" if LONG else "")
        raise AssertionError(f"{again}\n{found}\n{error}") from error


SALES, RETURNS = Source("ods.sales"), Source("ods.returns")
BY_DAY = Task(
    "dws.day",
    "group",
    ("ods.sales",),
    'return a.groupBy("day").agg(F.sum("amount").alias("amount"))',
    ("day", "amount"),
    (("by", ["day"]),),
)
WEEK = Task(
    "dws.week",
    "rolling",
    ("ods.sales",),
    'before = a.selectExpr("day as past", "amount as earlier")\n'
    'both = a.select("day").distinct().join(before, F.expr("past >= day - 6 and past <= day"))\n'
    'return both.groupBy("day").agg(F.sum("earlier").alias("amount"))',
    ("day", "amount"),
    (("by", ["day"]), ("lookback", {"a": 6})),
)
BOTH = Task(
    "dws.both",
    "join",
    ("ods.sales", "ods.returns"),
    'returned = b.groupBy("day").agg(F.sum("amount").alias("other"))\n'
    'return a.select("day", "amount").join(returned, "day", "full")',
    ("day", "amount", "other"),
    (("by", ["day"]),),
)


COPIED = Task(
    "dwd.copied",
    "rowwise",
    ("ods.sales",),
    'return a.select("day", "amount")',
    ("day", "amount"),
    (("rowwise", True),),
)


def row(number: int, day: int | None, amount: int = 1) -> Row:
    at = None if day is None else dt.date(2026, 1, day)
    return {"id": number, "day": at, "ts": None, "region": "north", "customer": 1, "amount": amount, "price": None}


FIRST = [row(number, number) for number in range(1, 9)]


def take_away(machine: Machine) -> None:
    machine.put(machine.paths(SALES)[0], FIRST[1:])


def replace_small(machine: Machine) -> None:
    machine.put(machine.paths(SALES)[1], [row(31, 7)])


def add_late(machine: Machine) -> None:
    machine.add(SALES, [row(20, 2, 5)])


def add_null(machine: Machine) -> None:
    machine.add(SALES, [row(21, None, 5)])


def add_to_both(machine: Machine) -> None:
    machine.add(SALES, [row(22, 3, 5)])
    machine.add(RETURNS, [row(23, 5, 5)])


# a planted bug: what shows it
SHOWN: dict[str, tuple[Task, Callable[[Machine], None]]] = {
    "rows that went are forgotten": (BY_DAY, take_away),
    "rows that came are forgotten": (BY_DAY, add_late),
    "only one input is looked at": (BOTH, add_to_both),
    "lookback is not counted on": (WEEK, add_late),
    "earlier slices are not read": (WEEK, add_late),
    "null keys are lost": (BY_DAY, add_null),
    "only one bucket is looked at": (BY_DAY, add_late),
    "old rows stay": (BY_DAY, add_late),
    "copies stay": (COPIED, replace_small),
}


def begun(root: Path, spark: "SparkSession", *tasks: Task) -> Machine:
    machine = Machine(root, spark, World((SALES, RETURNS), tasks))
    machine.declare(machine.world)
    for source in (SALES, RETURNS):
        machine.add(source, FIRST)
    machine.add(SALES, [row(30, 8)])
    machine.settle()
    return machine


@pytest.mark.parametrize("bug", MUTATIONS)
def test_a_bug_in_the_slice_logic_is_caught(bug: str, tmp_path: Path, spark: "SparkSession") -> None:
    task, change = SHOWN[bug]
    with thresholds(most=100.0, layout="buckets" if "bucket" in bug else None):
        machine = begun(tmp_path, spark, task)
        change(machine)
        with planted(bug), pytest.raises(Unlawful, match=f"{task.table} is wrong"):
            machine.settle()


def test_a_random_history_catches_a_bug(spark: "SparkSession") -> None:
    with planted("rows that came are forgotten"), pytest.raises(Unlawful, match="is wrong"):
        play(history(11), spark)


@pytest.mark.parametrize("layout", [None, "slices", "buckets"])
def test_without_a_bug_the_law_holds(layout: str | None, tmp_path: Path, spark: "SparkSession") -> None:
    with thresholds(most=100.0, layout=layout):
        machine = begun(tmp_path, spark, BY_DAY, WEEK, BOTH)
        for change in (take_away, add_late, add_null, add_to_both):
            change(machine)
        machine.settle()
    assert machine.actions["slices"] == 3
