"""Only the slices that changed are computed, and the table equals a full computation; on real Spark and Iceberg."""

import datetime as dt
from typing import Any

import pytest

from runnel.errors import RunnelError
from tests.run.project import Project, did, reasons

pytestmark = pytest.mark.cluster

JAN = [dt.date(2026, 1, day) for day in range(1, 32)]
D1, D2, D3 = JAN[:3]

DAYS = """
@rn.task("dws.day", by="day")
def day(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"), F.count("*").alias("n"))
"""


def step_of(ran: Any, table: str) -> Any:
    """Return what became of one table."""
    return next(step for step in ran.steps if str(step.table) == table)


def check_law(project: Project, *tables: str) -> None:
    """Assert that tables hold what a full computation makes."""
    before = {table: project.rows(table) for table in tables}
    project.run(full_refresh=True)
    assert {table: project.rows(table) for table in tables} == before


@pytest.fixture
def shop(project: Project) -> Project:
    """Revenue by day over ten files, one for each day, run once."""
    project.flow(DAYS)
    for number, day in enumerate(JAN[:10]):
        project.orders(f"{day}", (number, str(day), 5), (number + 100, str(day), 7))
    assert did(project.run())["dws.day"] == "full"
    return project


def test_a_new_file_computes_its_slice_only(shop: Project) -> None:
    shop.orders("late", (900, "2026-01-02", 1))
    plan = shop.plan()
    assert reasons(plan)["dws.day"] == "slices: ods.orders gets 1 new file; its slices are found first"
    done = shop.run()
    step = step_of(done, "dws.day")
    assert (step.action, step.rows) == ("slices", 1)
    assert step.reason == "1 of 10, ods.orders gained 1 row on 2026-01-02"
    assert (D2, 13, 3) in shop.rows("dws.day")
    check_law(shop, "dws.day")


def test_the_plan_names_slices_without_spark_where_files_tell(shop: Project) -> None:
    shop.orders("late", (900, "2026-01-02", 1))
    shop.orders("new", (901, "2026-01-20", 1), (902, "2026-01-20", 1))
    shop.run("ods.orders")
    plan = shop.plan()
    assert reasons(plan)["dws.day"] == (
        "slices: 2 of 10, ods.orders gained 1 row on 2026-01-02 and gained 2 on 2026-01-20"
    )
    step = next(step for step in plan.json()["steps"] if step["table"] == "dws.day")
    assert step["slices"] == {"changed": 2, "of": 10, "keys": ["2026-01-02", "2026-01-20"]}
    assert step_of(shop.run(), "dws.day").rows == 2
    shop.orders("new", (901, "2026-01-20", 3))
    assert step_of(shop.run(), "dws.day").reason == "1 of 11, ods.orders lost 1 row on 2026-01-20"
    check_law(shop, "dws.day")


def test_a_row_moves_between_slices_and_a_slice_vanishes(shop: Project) -> None:
    shop.orders("2026-01-01", (0, "2026-01-03", 5), (100, "2026-01-03", 7))
    done = shop.run()
    assert step_of(done, "dws.day").action == "slices"
    rows = shop.rows("dws.day")
    assert (D3, 24, 4) in rows and D1 not in [row[0] for row in rows] and len(rows) == 9
    check_law(shop, "dws.day")


def test_rewritten_but_equal_rows_compute_nothing(shop: Project) -> None:
    shop.write("data/orders/2026-01-01.csv", "id,day,amount\n100,2026-01-01,7\n0,2026-01-01,5\n")
    done = shop.run()
    assert did(done) == {"ods.orders": "ingest"} or step_of(done, "dws.day").rows == 1
    check_law(shop, "dws.day")


@pytest.mark.parametrize("by", ['"day"', '["day", "id"]'])
def test_rows_are_taken_out_of_a_large_table(project: Project, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.run.slices.replace._SMALL_BYTES", 0)
    project.flow(f"""
    @rn.task("dws.day", by={by}, checks=[rn.check("revenue > 0", on_fail="quarantine")])
    def day(orders):
        return orders.groupBy("day", "id").agg(F.sum("amount").alias("revenue"))
    """)
    for number, day in enumerate(JAN[:6]):
        project.orders(f"{day}", (number, str(day), 5), (number, str(day), 1))
    project.run()
    for amounts in ((7, 8), (-7, -8), (9, 9)):  # the same slice again and again: it has a file of its own by then
        project.orders("2026-01-02", (1, "2026-01-02", amounts[0]), (1, "2026-01-02", amounts[1]))
        step = step_of(project.run(), "dws.day")
        assert (step.action, step.set_aside) == ("slices", 1 if amounts[0] < 0 else 0)

    assert len(project.rows("dws.day")) == 6 and not project.rows("quarantine.dws_day")
    check_law(project, "dws.day")


def test_null_keys_are_a_slice_of_their_own(shop: Project) -> None:
    shop.write("data/orders/null.csv", "id,day,amount\n900,,3\n901,,4\n")
    assert step_of(shop.run(), "dws.day").reason == "1 of 10, ods.orders gained 2 rows in null"
    assert (None, 7, 2) in shop.rows("dws.day")
    shop.write("data/orders/null.csv", "id,day,amount\n900,,3\n901,2026-01-02,4\n")
    assert step_of(shop.run(), "dws.day").action == "slices"
    assert (None, 3, 1) in shop.rows("dws.day")
    check_law(shop, "dws.day")


def test_two_slices_that_emit_one_key_fail_and_name_it(project: Project) -> None:
    project.flow("""
    @rn.task("dws.last", by="day", key="id")
    def last(orders):
        return orders.select("id", "day", "amount").distinct()
    """)
    project.orders("a", (1, "2026-01-01", 5))
    project.orders("b", (2, "2026-01-02", 5))
    project.orders("c", (3, "2026-01-03", 5))
    project.run()
    project.orders("d", (1, "2026-01-02", 6))
    done = project.run()
    assert done.state == "failed"
    text = str(done.errors[0])
    assert "CHECK_FAILED" in text and "id 1 twice" in text
    assert len(project.rows("dws.last")) == 3


def rated(project: Project, options: str) -> None:
    """Run a task over orders of five days and a rate, then change the rate."""
    project.flow(f"""
    rn.source("ods.rates", rn.files("data/rates/*.csv", schema="currency string, rate long"))

    @rn.task("dws.day", {options})
    def day(orders, rates):
        return orders.crossJoin(rates).groupBy("day").agg(F.sum(F.col("amount") * F.col("rate")).alias("revenue"))
    """)
    project.write("data/rates/a.csv", "currency,rate\neur,2\n")
    for day in JAN[:5]:
        project.orders(f"{day}", (1, str(day), 5))
    project.run()
    project.write("data/rates/a.csv", "currency,rate\neur,3\n")


def test_a_reference_alone_computes_nothing_and_is_used_with_the_next_change(project: Project) -> None:
    rated(project, 'by="day", reference="rates"')
    assert did(project.run()) == {"ods.rates": "ingest"}
    project.orders("2026-01-01", (1, "2026-01-01", 6))
    assert did(project.run()) == {"ods.orders": "ingest", "dws.day": "slices"}
    assert project.rows("dws.day")[:2] == [(D1, 18), (D2, 10)]


def test_a_task_without_its_key_is_refused(project: Project) -> None:
    project.flow("""
    @rn.task("dws.day", by="day")
    def day(orders):
        return orders.groupBy("id").agg(F.max("day").alias("day"))
    """)
    project.orders("a", (1, "2026-01-01", 5))
    done = project.run()
    assert done.state == "failed" and "RUN_NOT_BY" in str(done.errors[0])


def test_rolling_days_with_lookback(project: Project) -> None:
    project.flow("""
    from pyspark.sql import Window

    @rn.task("dws.week", by="day", lookback={"orders": 6})
    def week(orders):
        days = orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
        over = Window.orderBy(F.unix_date("day")).rangeBetween(-6, 0)
        return days.select("day", F.sum("revenue").over(over).alias("week"))
    """)
    for number, day in enumerate(JAN[:31]):
        project.orders(f"{day}", (number, str(day), 1))
    project.run()
    project.orders("late", (900, "2026-01-05", 10))
    step = step_of(project.run(), "dws.week")
    assert (step.action, step.rows) == ("slices", 7)
    weeks = dict(project.rows("dws.week"))
    assert [weeks[day] for day in JAN[3:12]] == [4, 15, 16, *[17] * 5, 7]
    check_law(project, "dws.week")


def test_quarantined_rows_of_a_slice_are_replaced(project: Project) -> None:
    project.flow("""
    NOT_NEGATIVE = rn.check("amount >= 0", on_fail="quarantine")

    @rn.task("dwd.orders", inputs={"orders": "ods.orders"}, by="day", checks=[NOT_NEGATIVE])
    def clean(orders):
        return orders.where("id < 1000")
    """)
    for number, day in enumerate(JAN[:5]):
        project.orders(f"{day}", (number, str(day), 1), (number + 100, str(day), -1))
    project.run()
    assert len(project.rows("quarantine.dwd_orders")) == 5
    project.orders("2026-01-02", (1, "2026-01-02", 1), (101, "2026-01-02", 3))
    step = step_of(project.run(), "dwd.orders")
    assert (step.action, step.rows) == ("slices", 2)
    assert len(project.rows("quarantine.dwd_orders")) == 4
    assert len(project.rows("dwd.orders")) == 6
    project.orders("2026-01-03", (2, "2026-01-03", 1), (102, "2026-01-03", -3), (103, "2026-01-03", -4))
    project.run()
    assert len(project.rows("quarantine.dwd_orders")) == 5
    check_law(project, "dwd.orders")


def test_an_input_without_the_key_computes_all(project: Project) -> None:
    rated(project, 'by="day"')
    step = step_of(project.run(), "dws.day")
    assert step.action == "full" and "it has no `day` to split slices by" in step.reason
    assert project.rows("dws.day")[0] == (D1, 15)


def test_most_slices_are_computed_as_all(shop: Project) -> None:
    for day in JAN[:8]:
        shop.orders(f"more {day}", (500, str(day), 1))
    step = step_of(shop.run(), "dws.day")
    assert step.action == "full" and "that is most of" in step.reason
    check_law(shop, "dws.day")


def test_wrong_options_are_refused(project: Project) -> None:
    project.flow("""
    @rn.task("dws.day", by=["day", "id"], by_input={"orders": "to_date(day)"}, lookback={"orders": 2})
    def day(orders):
        return orders
    """)
    project.orders("a", (1, "2026-01-01", 5))
    with pytest.raises(RunnelError) as caught:
        project.run()
    assert "by_input" in str(caught.value) and "lookback" in str(caught.value)
