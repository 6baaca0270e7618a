"""What happens to a lake between two runs: compaction, revert, merge, new columns, erasure. Slices see through it."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

import pytest

from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.erase.erase import erase
from runnel.names import TableName
from runnel.run.results.run_result import RunResult
from tests.run.project import Project, did, reasons
from tests.run.run_inspection import actions, counted, numbers, oracle, step_of
from tests.run.test_scenarios import gain_column

JAN = [dt.date(2026, 1, day) for day in range(1, 32)]
MANUAL = """
rn.source("ods.rows", rn.manual())


@rn.task("dwd.rows", by="day", inputs={"rows": "ods.rows"})
def cleaned(rows):
    return rows.where("amount > 0").dropDuplicates(["day", "id"])


@rn.task("dws.day", by="day", inputs={"rows": "dwd.rows"})
def day(rows):
    return rows.groupBy("day").agg(F.sum("amount").alias("revenue"), F.count("*").alias("n"))
"""
DAY = "select day, sum(amount)::long, count(*) from rows where amount > 0 group by day"
Rows = Iterable[tuple[int, int, int]]


def load(project: Project, rows: Rows, *, branch: str = "main", **options: Any) -> None:
    """Load rows (id, day of January, amount) by hand."""
    lines = [f"{number},{JAN[day - 1]},{amount}" for number, day, amount in rows]
    project.write("rows.csv", "\n".join(["id,day,amount", *lines]) + "\n")
    with project.open() as lake:
        lake.load("ods.rows", project.root / "rows.csv", branch=branch, **options)


def check(project: Project, at: str = "main") -> None:
    assert project.rows("dws.day", at) == oracle(project, DAY, "ods.rows", at=at)


def started(project: Project, **options: Any) -> Project:
    """Return a project with two layers of slices over a table that was loaded by hand in four steps."""
    project.flow(MANUAL, orders=None)
    for first in (1, 4, 7, 10):
        load(project, ((day + more, day, 5) for day in range(first, first + 3) for more in (0, 100)), **options)
    assert actions(project.run()) == {"ods.rows": "skip", "dwd.rows": "full", "dws.day": "full"}
    return project


def compacted(project: Project) -> list[str]:
    with project.open() as lake:
        return [one.table for one in compact(lake.store, target_bytes=1 << 20) if one.commit]


@pytest.mark.parametrize("partition", [(), ("day",), ("bucket(2, id)",)], ids=["whole", "by day", "by bucket"])
def test_compaction_computes_nothing_and_the_next_row_its_slice_only(
    project: Project, partition: tuple[str, ...]
) -> None:
    started(project, **({"partition": partition} if partition else {}))
    load(project, [(900, 2, 1)])
    assert counted(project.run(), "dws.day") == "1 of 12"
    assert {"ods.rows", "dwd.rows"} <= set(compacted(project))
    plan = project.plan()
    assert not plan.jvm and {step.action for step in plan.steps} == {"skip"}
    assert project.run().state == "nothing"
    load(project, [(901, 2, 1), (902, 20, 1)])
    if partition == ("day",):
        assert reasons(project.plan())["dwd.rows"] == (
            "slices: 2 of 12, ods.rows gained 1 row on 2026-01-02 and gained 1 on 2026-01-20"
        )
    compacted(project)  # an append and a compaction that takes it in
    done = project.run()
    assert (counted(done, "dwd.rows"), counted(done, "dws.day")) == ("2 of 12", "2 of 12")
    assert numbers(done) == {"dwd.rows": 5, "dws.day": 2}
    check(project)


def test_a_reverted_input_is_reused_and_the_next_row_computes_its_slice_only(project: Project) -> None:
    started(project)
    before = project.rows("dws.day")
    load(project, [(900, 2, 1)])
    project.run()
    with project.open() as lake:
        (loaded,) = [commit.id for commit in lake.log(limit=2) if "load" in commit.message]
        lake.revert(loaded)
    assert actions(project.run()) == {"ods.rows": "skip", "dwd.rows": "reuse", "dws.day": "reuse"}
    assert project.rows("dws.day") == before
    load(project, [(901, 3, 1)])
    done = project.run()
    assert numbers(done) == {"dwd.rows": 3, "dws.day": 1}
    assert step_of(done, "dws.day").reason == "1 of 12, dwd.rows gained 1 row on 2026-01-03"
    check(project)


def test_a_merge_of_branches_that_changed_different_slices_computes_these_only(project: Project) -> None:
    from runnel.project.execution.merge_and_run import merge_and_run

    started(project)
    with project.open() as lake:
        lake.branch("dev")
    load(project, [(900, 2, 1), (901, 3, 1)], branch="dev")
    assert numbers(project.run(branch="dev")) == {"dwd.rows": 6, "dws.day": 2}
    load(project, [(902, 3, 2), (903, 4, 2)])
    assert numbers(project.run()) == {"dwd.rows": 6, "dws.day": 2}
    ran: list[RunResult] = []
    with project.open() as lake:
        merge_and_run(lake, "dev", "main", on_result=ran.append)
    assert numbers(ran[0]) == {"dwd.rows": 3 + 4, "dws.day": 2}  # what dev changed, on top of main
    check(project)
    assert project.run().state == "nothing"


def test_erased_rows_leave_every_layer(project: Project) -> None:
    started(project)
    with project.open() as lake:
        assert erase(lake.store, TableName.parse("ods.rows"), "id = 2").rows == 1
    done = project.run()
    check(project)
    assert (2, JAN[1], 5) not in project.rows("dwd.rows")
    assert step_of(done, "dws.day").reason == "1 of 12, dwd.rows lost 1 row on 2026-01-02"


COLUMNS = """
rn.source("ods.rows", rn.manual())


@rn.task("dws.day", by="day")
def day(rows):
    return rows.where("amount > 0").groupBy("day").agg(F.sum("amount").alias("revenue"), F.count("*").alias("n"))


@rn.task("dws.every", by="day")
def every(rows):
    return rows.dropDuplicates()
"""


def test_a_new_column_computes_who_uses_it_and_slices_go_on(project: Project) -> None:
    project.flow(COLUMNS, orders=None)
    load(project, ((day, day, 5) for day in range(1, 11)))
    project.run()
    with project.open() as lake:
        gain_column(lake, "ods.rows", "note")
    done = project.run()
    assert (did(done), step_of(done, "dws.day").action) == ({"dws.every": "full"}, "skip")
    load(project, [(900, 2, 1)])
    done = project.run()
    assert (counted(done, "dws.day"), counted(done, "dws.every")) == ("1 of 10", "1 of 10")
    assert numbers(done) == {"dws.day": 1, "dws.every": 2}
    project.write("wide.csv", "id,day,amount,note\n901,2026-01-03,1,new\n")
    with project.open() as lake:
        lake.load("ods.rows", project.root / "wide.csv")
    assert numbers(project.run()) == {"dws.day": 1, "dws.every": 2}
    check(project)
    assert project.rows("dws.every") == oracle(project, "select distinct * from rows", "ods.rows")


def test_a_retyped_column_computes_all_and_slices_go_on(project: Project) -> None:
    project.flow(COLUMNS, orders=None)
    load(project, ((day, day, 5) for day in range(1, 11)), schema="amount int")
    project.run()
    retype(project, "amount")
    done = project.run()
    assert actions(done) == {"ods.rows": "skip", "dws.day": "full", "dws.every": "full"}
    assert "changed its columns" in step_of(done, "dws.day").reason
    load(project, [(900, 2, 2**40)])
    assert numbers(project.run()) == {"dws.day": 1, "dws.every": 2}
    check(project)
    assert project.rows("dws.every") == oracle(project, "select distinct * from rows", "ods.rows")


def retype(project: Project, column: str) -> None:
    """Let a column of ods.rows hold longs, as another engine does: by metadata alone."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.types import LongType

    with project.open() as lake:
        store = lake.store
        catalog = SqlCatalog("main", uri=store.db.url.render_as_string(hide_password=False), warehouse=store.warehouse)
        with catalog.load_table("ods.rows").update_schema() as update:
            update.update_column(column, LongType())


QUARANTINE = """
CHECKS = [rn.check("amount >= 0", on_fail="quarantine"), rn.check("id < 500", on_fail="drop")]

@rn.task("dwd.good", by="day", checks=CHECKS)
def good(orders):
    return orders.dropDuplicates()
"""


def test_rows_in_quarantine_on_another_branch_are_put_there_on_this_one_too(project: Project) -> None:
    """Both branches have equal rows in the table, but not in quarantine: a slice that only dev has judged is judged."""
    project.flow(QUARANTINE)
    for number, day in enumerate(JAN[:8]):
        project.orders(f"{day}", (number, str(day), 5))
    project.run()
    with project.open() as lake:
        lake.branch("dev")
    project.orders("bad", (100, "2026-01-03", -1), (101, "2026-01-04", -1), (501, "2026-01-03", 1))
    assert step_of(project.run(branch="dev"), "dwd.good").set_aside == 3
    project.orders("more", (102, "2026-01-05", 1))
    assert "quarantine.dwd_good holds other rows" in step_of(project.run(), "dwd.good").reason
    assert project.rows("dwd.good") == oracle(
        project, "select * from orders where amount >= 0 and id < 500", "ods.orders"
    )
    with project.open() as lake:
        assert len(lake.query("select raw from quarantine.dwd_good").rows()) == 2


CHAIN = """
@rn.task("dwd.clean", by="day", inputs={"orders": "ods.orders"})
def clean(orders):
    return orders.groupBy("id", "day").agg(F.max("amount").alias("amount"))


@rn.task("dws.day", by="day", inputs={"orders": "dwd.clean"})
def day(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))


@rn.task("ads.month", by="month", by_input={"days": "trunc(day, 'month')"}, inputs={"days": "dws.day"})
def month(days):
    return days.groupBy(F.expr("trunc(day, 'month')").alias("month")).agg(F.sum("revenue").alias("revenue"))


@rn.task("ads.week", by="day", lookback={"days": 6}, inputs={"days": "dws.day"})
def week(days):
    other = days.selectExpr("day AS before", "revenue AS past")
    near = days.join(other, F.expr("before BETWEEN date_sub(day, 6) AND day"))
    return near.groupBy("day").agg(F.sum("past").alias("revenue"), F.count("*").alias("n"))
"""
CHAIN_LAW = {
    "dws.day": "select day, sum(amount)::long from clean group by day",
    "ads.month": """
        select date_trunc('month', day)::date, sum(amount)::long from clean group by 1""",
    "ads.week": """
        with days as (select day, sum(amount)::long r from clean group by day)
        select a.day, sum(b.r)::long, count(*) from days a join days b on b.day between a.day - 6 and a.day
        group by a.day""",
}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Project:
    """Four layers over sixty days with gaps, one file for each ten days."""
    project = Project(tmp_path_factory.mktemp("chain"), spark)
    project.flow(CHAIN, orders=', removed="delete"')
    days = [dt.date(2026, 1, 1) + dt.timedelta(days=number) for number in range(120) if not 33 <= number <= 44]
    for first in range(0, len(days), 12):
        rows = [(number, str(day), 5) for number, day in enumerate(days[first : first + 12])]
        project.orders(f"{first}", *rows)
    project.orders("gone", (700, "2026-01-09", 1))
    project.orders("vanishes", (701, "2026-06-15", 1))
    project.orders("moves", (702, "2026-03-01", 1))
    project.run()
    check_chain(project)
    return project


def check_chain(project: Project) -> None:
    for table, sql in CHAIN_LAW.items():
        assert project.rows(table) == oracle(project, sql, "dwd.clean"), table
    clean = "select id, day, max(amount) from orders group by all"
    assert project.rows("dwd.clean") == oracle(project, clean, "ods.orders")


CHAINED = {
    # what happens: (the change, how many slices of each layer)
    "a late row": (lambda p: p.orders("late", (800, "2026-01-12", 3)), (1, 1, 1, 7)),
    "a corrected row": (lambda p: p.orders("late", (800, "2026-01-12", 4)), (1, 1, 1, 7)),
    "a row that changes nothing above": (lambda p: p.orders("same", (0, "2026-01-01", 2)), (1, 0, 0, 0)),
    "a moved row": (lambda p: p.orders("moves", (702, "2026-02-20", 1)), (2, 2, 2, 14)),
    "a removed row": (lambda p: (p.root / "data/orders/gone.csv").unlink(), (1, 1, 1, 7)),
    "a day vanishes": (lambda p: (p.root / "data/orders/vanishes.csv").unlink(), (1, 1, 1, 7)),
    "a row at the end": (lambda p: p.orders("end", (900, "2026-04-30", 1)), (1, 1, 1, 7)),
    "a row in a gap of days": (lambda p: p.orders("gap", (901, "2026-02-05", 1)), (1, 1, 1, 7)),
}


@pytest.mark.parametrize(("change", "slices"), CHAINED.values(), ids=CHAINED)
def test_one_row_flows_through_all_layers_with_its_slices_only(
    chain: Project, change: Any, slices: tuple[int, int, int, int]
) -> None:
    change(chain)
    done = chain.run()
    check_chain(chain)
    tables = ("dwd.clean", "dws.day", "ads.month", "ads.week")
    found = [int(counted(done, table).split()[0]) if step_of(done, table).action == "slices" else 0 for table in tables]
    assert tuple(found) == slices
