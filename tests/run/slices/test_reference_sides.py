"""A side that is the same for all slices, computed from a reference, does not hinder a computation by slices."""

import pytest

from tests.run.project import Project, did
from tests.run.run_inspection import step_of

FLOW = """
rn.source("ods.rates", rn.files("data/rates/*.csv", schema="shop long, rate long"))
options = {"by": "day", "inputs": {"orders": "ods.orders", "rates": "ods.rates"}, "reference": ["rates"]}

@rn.task("dws.cross_join", **options)
def cross_join(orders, rates):
    return orders.crossJoin(rates.agg(F.max("rate").alias("rate")))

@rn.task("dws.join_aggregate", **options)
def join_aggregate(orders, rates):
    highest = rates.groupBy("shop").agg(F.max("rate").alias("rate"))
    return orders.join(highest, orders.id == highest.shop, "left").select("id", "day", "amount", "rate")

@rn.task("dws.distinct_side", **options)
def distinct_side(orders, rates):
    return orders.join(rates.select(F.col("shop").alias("id")).distinct(), "id", "left_semi")

@rn.task("dws.ranked_side", **options)
def ranked_side(orders, rates):
    from pyspark.sql import Window

    rank = F.row_number().over(Window.partitionBy("shop").orderBy(F.desc("rate")))
    newest = rates.withColumn("rank", rank).where("rank = 1").select(F.col("shop").alias("id"), "rate")
    return orders.join(newest, "id", "left").groupBy("day").agg(F.sum("rate").alias("rate"))
"""
HEADER = '/* runnel\nby = "day"\nreference = ["ods.rates"]\n*/\n'
QUERIES = {
    "scalar_subquery": "select id, day, amount, (select max(rate) from ods.rates) as rate from ods.orders",
    "in_subquery": "select day, count(*) as n from ods.orders where id in (select shop from ods.rates) group by day",
    "cross_joined_aggregate": (
        "select day, sum(amount) * max(top.rate) as total from ods.orders "
        "cross join (select max(rate) as rate from ods.rates) top group by day"
    ),
    "with_clause": (
        "with top as (select shop, max(rate) as rate from ods.rates group by shop) "
        "select o.day, o.id, top.rate from ods.orders o left join top on o.id = top.shop"
    ),
}
TABLES = ["cross_join", "join_aggregate", "distinct_side", "ranked_side", *QUERIES]


@pytest.fixture
def shop(project: Project) -> Project:
    project.flow(FLOW)
    for name, sql in QUERIES.items():
        project.write(f"flows/dws/{name}.sql", HEADER + sql)
    project.write("data/rates/a.csv", "shop,rate\n1,3\n1,4\n2,5\n7,9\n")
    project.orders("a", *((number, f"2026-01-{number:02}", number) for number in range(1, 10)))
    return project


def test_sides_that_are_the_same_for_all_slices(shop: Project) -> None:
    ran = shop.run()
    assert not ran.errors and [step.warnings for step in ran.steps if step.warnings] == []
    shop.orders("b", (2, "2026-01-03", 20), (8, "2026-01-10", 30))
    ran = shop.run(verify=True)  # compares each table with a full computation
    assert not ran.errors, ran.errors[0]
    tables = [f"dws.{name}" for name in TABLES]
    assert {name: did(ran)[name] for name in tables} == dict.fromkeys(tables, "slices")
    assert {step_of(ran, name).reason.partition(",")[0] for name in tables} <= {"2 of 9", "2 of 10"}
    assert {step_of(ran, name).verified for name in tables} == {True}
