"""`verify` compares every table with a full computation before anything is published; on real Spark and Iceberg."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from runnel.errors import RunnelError
from runnel.run.slices import keys
from tests.run.project import Project, did

D1, D2, D3 = (dt.date(2026, 1, day) for day in (1, 2, 3))
DAYS = """
@rn.task("dws.day", by="day")
def day(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))

@rn.task("dwd.clean", rowwise=True, checks=[rn.check("amount >= 0", on_fail="quarantine")])
def clean(orders):
    return orders.withColumn("twice", F.col("amount") * 2)

@rn.task("dws.total", inputs={"day": "dws.day"})
def total(day):
    return day.agg(F.sum(F.col("revenue") / 7).alias("sevenths"))
"""
# It promises to be sliced, but each day counts the days it sees: Runnel can't look into a function of pandas.
UNSLICED = """
@rn.task("dws.day", by="day", trust_by=True)
def day(orders):
    def count(frames):
        import pandas as pd
        days = pd.concat(frames)
        kept = days.drop_duplicates("day")[["day"]]
        kept["days"] = len(kept)
        yield kept
    return orders.coalesce(1).mapInPandas(count, "day date, days long")
"""


EXCEPTIONS = """
rn.source("ods.rates", rn.files("data/rates/*.csv", schema="currency string, rate long"))

@rn.task("dws.day", by="day", reference="rates")
def day(orders, rates):
    return orders.crossJoin(rates).groupBy("day").agg(F.sum(F.col("amount") * F.col("rate")).alias("revenue"))

@rn.task("dws.chance", inputs={"orders": "ods.orders"})
def chance(orders):
    return orders.withColumn("x", F.rand())

@rn.task("dws.now", inputs={"orders": "ods.orders"}, volatile=True)
def now(orders):
    return orders
"""


def verified(ran: Any) -> dict[str, bool | None]:
    return {str(step.table): step.verified for step in ran.steps}


@pytest.fixture
def fill(project: Project) -> Callable[..., Project]:
    """Return a function that makes a project with orders on five days, run once."""

    def make(flow: str) -> Project:
        project.flow(flow)
        for number in range(1, 6):
            project.orders(f"{number}", (number, f"2026-01-0{number}", 5), (number + 100, f"2026-01-0{number}", -7))
        assert project.run().state == "succeeded"
        return project

    return make


def test_all_tables_equal_a_full_computation(fill: Callable[..., Project]) -> None:
    shop = fill(DAYS)
    shop.orders("late", (9, "2026-01-02", 1))
    done = shop.run(verify=True)
    assert did(done) == {"ods.orders": "ingest", "dws.day": "slices", "dwd.clean": "rows", "dws.total": "full"}
    assert verified(done) == {"ods.orders": None, "dws.day": True, "dwd.clean": True, "dws.total": None}
    again = shop.run(verify=True)
    assert (again.state, again.commit) == ("nothing", None)
    assert verified(again) == {"ods.orders": None, "dws.day": True, "dwd.clean": True, "dws.total": True}


def test_a_planted_bug_in_the_slices_is_found(fill: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> None:
    shop = fill(DAYS)
    shop.orders("late", (9, "2026-01-02", 1), (10, "2026-01-03", 1))
    real = keys.SliceKeys.condition
    with monkeypatch.context() as patch:  # forgets the last of several keys
        patch.setattr(
            keys.SliceKeys,
            "condition",
            lambda self, texts: real(
                keys.SliceKeys(1, self.values[:-1]) if len(self.values or ()) > 1 else self, texts
            ),
        )
        done = shop.run("+dws.day", verify=True)
    assert (done.state, done.commit, verified(done)["dws.day"]) == ("failed", None, False)
    [error] = done.errors
    assert error.code == "RUN_VERIFY_DIFFERS" and "flows/flow.py:" in str(error.at)
    assert error.what.splitlines() == [
        "`dws.day` differs from a full computation: 1 row only in the table, 1 only in the full computation",
        "  day 2026-01-03: revenue -2 in the table, -1 in the full computation",
    ]
    # The wrong result is not known: without the bug the table is computed again, and right.
    done = shop.run("+dws.day", verify=True)
    assert (did(done)["dws.day"], verified(done)["dws.day"]) == ("slices", True)
    assert (D3, -1) in shop.rows("dws.day")


def test_a_task_that_is_not_really_sliced_is_found(fill: Callable[..., Project]) -> None:
    shop = fill(UNSLICED)
    shop.orders("late", (9, "2026-01-02", 1))
    done = shop.run()
    assert did(done)["dws.day"] == "slices" and (D2, 1) in shop.rows("dws.day")
    before = shop.commits()
    done = shop.run(verify=True)  # there is nothing to do, but what is there is wrong
    assert (done.state, verified(done)["dws.day"]) == ("failed", False)
    assert "day 2026-01-02: days 1 in the table, 5 in the full computation" in done.errors[0].what
    assert "by=" in str(done.errors[0].fix) and shop.commits() == before
    done = shop.run(full_refresh=True, verify=True)
    assert (done.state, verified(done)["dws.day"]) == ("succeeded", None)
    assert shop.run(verify=True).state == "nothing"


def test_what_may_differ_is_named(project: Project) -> None:
    project.write("data/rates/a.csv", "currency,rate\neur,2\n")
    project.flow(EXCEPTIONS)
    for number in range(1, 6):
        project.orders(f"{number}", (number, f"2026-01-0{number}", 5))
    project.run()
    done = project.run(verify=True)
    assert verified(done)["dws.day"] is True
    project.write("data/rates/a.csv", "currency,rate\neur,3\n")
    project.run()
    project.orders("1", (1, "2026-01-01", 6))
    done = project.run(verify=True)
    assert done.state == "succeeded" and did(done)["dws.day"] == "slices"
    told = {str(step.table): step.warnings for step in done.steps}
    assert verified(done) == dict.fromkeys(["ods.orders", "ods.rates", "dws.chance", "dws.day", "dws.now"])
    assert told["dws.day"] == ("not compared: its reference `ods.rates` changed since it was computed; 8 rows differ",)
    assert told["dws.now"] == ("not compared: it is volatile",)
    done = project.run("dws.chance", verify=True)
    assert done.steps[0].warnings == ("not compared: it uses `rand`, which may differ each time it is computed",)
    project.run(full_refresh=True)
    assert verified(project.run(verify=True))["dws.day"] is True


def test_the_lake_raises(fill: Callable[..., Project]) -> None:
    shop = fill(UNSLICED)
    shop.orders("late", (9, "2026-01-02", 1))
    with shop.open() as lake, pytest.raises(RunnelError, match="differs from a full computation"):
        lake.run(verify=True)
