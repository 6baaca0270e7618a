"""Tasks over several sliced inputs: each change computes its own slices in each kind of task, and the law holds."""

import datetime as dt
from typing import Any

import pytest

from tests.run.project import Project
from tests.run.run_inspection import counted, numbers, oracle, step_of

pytestmark = pytest.mark.cluster

FLOW = """
from pyspark.sql import Window

rn.source("ods.orders", rn.files("data/orders/*.csv", schema="id long, day date, amount long"))
rn.source("ods.refunds", rn.files("data/refunds/*.csv", schema="day date, back long"))
rn.source("ods.visits", rn.files("data/visits/*.csv", schema="day date, n long, seen_at timestamp"))


@rn.task("dws.inner_join", by="day")
def inner(orders, refunds):
    return orders.join(refunds, "day").select("day", "id", "amount", "back")


@rn.task("dws.left_join", by="day")
def left(orders, refunds):
    return orders.join(refunds, "day", "left").select("day", "id", "amount", "back")


@rn.task("dws.anti_join", by="day")
def anti(orders, refunds):
    return orders.join(refunds, "day", "left_anti").select("day", "id")


@rn.task("dws.outer_join", by="day")
def outer(orders, refunds, visits):
    sums = [
        orders.groupBy("day").agg(F.sum("amount").alias("amount")),
        refunds.groupBy("day").agg(F.sum("back").alias("back")),
        visits.groupBy("day").agg(F.sum("n").alias("n")),
    ]
    return sums[0].join(sums[1], "day", "full").join(sums[2], "day", "full").select("day", "amount", "back", "n")


@rn.task("dws.crossed", by="day")
def crossed(orders, refunds, visits):
    pairs = orders.alias("o").crossJoin(refunds.alias("r")).crossJoin(visits.alias("v"))
    return pairs.where("o.day = r.day AND r.day = v.day").selectExpr("o.day", "id", "amount", "back", "n")


@rn.task("dws.stacked", by="day")
def stacked(orders, refunds, visits):
    every = orders.select("day", "amount").union(refunds.select("day", "back")).union(visits.select("day", "n"))
    return every.groupBy("day").agg(F.sum("amount").alias("total"), F.count("*").alias("n"))


@rn.task("dws.ranked", by="day")
def ranked(orders):
    over = Window.partitionBy("day").orderBy(F.desc("amount"), "id")
    return orders.select("day", "id", F.row_number().over(over).alias("place"), F.lag("amount").over(over).alias("lag"))
"""
SQL = """/* runnel
by = "day"
by_input = { visits = "to_date(seen_at)" }
*/
select o.day, count(*) as n, max(v.n) as most
from ods.orders o left join ods.visits v on to_date(v.seen_at) = o.day
group by o.day
"""
LAW = {
    "dws.inner_join": "select o.day, id, amount, back from orders o join refunds r on o.day = r.day",
    "dws.left_join": "select o.day, id, amount, back from orders o left join refunds r on o.day = r.day",
    "dws.anti_join": "select day, id from orders o where not exists (from refunds r where r.day = o.day)",
    "dws.outer_join": """
        select coalesce(o.day, r.day, v.day), o.total::long, r.total::long, v.total::long
        from (select day, sum(amount) total from orders group by 1) o
        full join (select day, sum(back) total from refunds group by 1) r on o.day = r.day
        full join (select day, sum(n) total from visits group by 1) v on v.day = coalesce(o.day, r.day)""",
    "dws.crossed": """
        select o.day, id, amount, back, n
        from orders o join refunds r on o.day = r.day join visits v on v.day = o.day""",
    "dws.stacked": """
        select day, sum(x)::long, count(*) from (
            select day, amount x from orders union all select day, back from refunds union all select day, n from visits
        ) group by day""",
    "dws.ranked": """
        select day, id, row_number() over w, lag(amount) over w from orders
        window w as (partition by day order by amount desc, id)""",
    "dws.by_sql": """
        select o.day, count(*), max(v.n) from orders o left join visits v on v.day = o.day group by o.day""",
}
READS = {
    "dws.inner_join": "orders refunds",
    "dws.left_join": "orders refunds",
    "dws.anti_join": "orders refunds",
    "dws.outer_join": "orders refunds visits",
    "dws.crossed": "orders refunds visits",
    "dws.stacked": "orders refunds visits",
    "dws.ranked": "orders",
    "dws.by_sql": "orders visits",
}


def day(number: int | None) -> str:
    return "" if number is None else f"2026-01-{number:02}"


def refunds(project: Project, name: str, *rows: tuple[int | None, int]) -> None:
    project.write(f"data/refunds/{name}.csv", "day,back\n" + "".join(f"{day(at)},{back}\n" for at, back in rows))


def visits(project: Project, name: str, *rows: tuple[int | None, int]) -> None:
    project.write(
        f"data/visits/{name}.csv",
        "day,n,seen_at\n" + "".join(f"{day(at)},{n},{day(at) and day(at) + 'T23:59:59Z'}\n" for at, n in rows),
    )


def orders(project: Project, name: str, *rows: tuple[int, int | None, int]) -> None:
    project.orders(name, *((number, day(at), amount) for number, at, amount in rows))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Project:
    """Three sources over twenty days, not each with every day, and eight tasks over them, run once."""
    project = Project(tmp_path_factory.mktemp("joins"), spark)
    project.flow(FLOW, orders=None)
    project.write("flows/dws/by_sql.sql", SQL)
    for number in range(1, 21):
        orders(project, f"{number}", (number, number, 5), (number + 100, number, 7))
    refunds(project, "all", *((number, number) for number in range(1, 21) if number % 2))
    visits(project, "all", *((number, number) for number in range(1, 21) if number % 4), (2, 50), (None, 1))
    done = project.run()
    assert not done.errors, done.errors[0]
    check(project)
    return project


def check(project: Project) -> dict[str, list[Any]]:
    """Assert that each table holds what the oracle says, and return that."""
    sources = ("ods.orders", "ods.refunds", "ods.visits")
    found = {table: oracle(project, sql, *sources) for table, sql in LAW.items()}
    assert {table: project.rows(table) for table in LAW} == found
    return found


CHANGES = {
    # what happens: (the change, the days that each changed source touches)
    "one side gains a row": (lambda p: refunds(p, "late", (4, 40)), {"refunds": [4]}),
    "both sides change, on different days": (
        lambda p: (orders(p, "1", (1, 1, 6)), refunds(p, "more", (6, 60), (7, 70))),
        {"orders": [1], "refunds": [6, 7]},
    ),
    "all sides change, on one day": (
        lambda p: (orders(p, "x", (900, 9, 1)), refunds(p, "y", (9, 1)), visits(p, "z", (9, 9), (9, 8))),
        {"orders": [9], "refunds": [9], "visits": [9]},
    ),
    "a day vanishes on one side": (lambda p: orders(p, "11", (11, 12, 5)), {"orders": [11, 12]}),
    "a day comes that no side had": (lambda p: visits(p, "new", (25, 1)), {"visits": [25]}),
    "null keys on two sides, which join nothing": (
        lambda p: (orders(p, "null", (800, None, 8)), refunds(p, "null", (None, 8))),
        {"orders": [None], "refunds": [None]},
    ),
}


@pytest.mark.parametrize(("change", "touched"), CHANGES.values(), ids=CHANGES)
def test_only_the_touched_days_are_computed_in_each_kind_of_join(
    shop: Project, change: Any, touched: dict[str, list[int | None]]
) -> None:
    change(shop)
    done = shop.run()
    expected = check(shop)
    days = {
        table: {at and dt.date(2026, 1, at) for source in reads.split() for at in touched.get(source, [])}
        for table, reads in READS.items()
    }
    rows = {table: sum(row[0] in days[table] for row in expected[table]) for table in LAW if days[table]}
    assert numbers(done) == rows
    assert {table: counted(done, table).split()[0] for table in rows} == {
        table: str(len(days[table])) for table in rows
    }
    assert all(step_of(done, table).action == "skip" for table in LAW if not days[table])
