"""After a failed run the next change is computed from what the failed run finished, or from what was published."""

import pytest

from runnel.run.results.run_result import RunResult
from tests.run.project import Project, did, reasons
from tests.run.run_inspection import step_of

FLOW = """
FACTOR = {factor}

@rn.task("dwd.sliced", by="day")
def sliced(orders):
    return orders.groupBy("day").agg((F.sum("amount") * FACTOR).alias("amount"))

@rn.task("dwd.rows", rowwise=True)
def rowwise(orders):
    return orders.select("id", (F.col("amount") * FACTOR).alias("amount"))

@rn.task("dws.last", inputs={{"sliced": "dwd.sliced", "rows": "dwd.rows"}})
def last(sliced, rows):
    {body}
    return sliced.select("amount").union(rows.select("amount"))
"""
FAILS, WORKS = 'raise RuntimeError("broken")', "pass"
DAYS = [f"2026-01-{day:02d}" for day in range(1, 10)]
MANUAL = 'rn.source("ods.orders", rn.manual())\n'


def write_flow(project: Project, body: str, factor: int = 1, *, manual: bool = False) -> None:
    text = FLOW.format(body=body, factor=factor)
    project.flow(MANUAL + text, orders=None) if manual else project.flow(text)


def load(project: Project, *rows: tuple[int, str, int]) -> None:
    lines = [f"{number},{day},{amount}" for number, day, amount in rows]
    project.write("orders.csv", "\n".join(["id,day,amount", *lines]) + "\n")
    with project.open() as lake:
        lake.load("ods.orders", project.root / "orders.csv")


def failed(project: Project) -> None:
    ran = project.run()
    assert [error.code for error in ran.errors] == ["RUN_TASK_FAILED"], ran.errors
    assert {str(step.table) for step in ran.steps if step.state == "succeeded"} >= {"dwd.sliced", "dwd.rows"}


def check(project: Project, rows: list[tuple[int, str, int]], factor: int = 1) -> None:
    assert project.rows("dwd.rows") == sorted(((number, amount * factor) for number, _, amount in rows), key=repr)
    days = {day: sum(amount for _, at, amount in rows if at == day) * factor for _, day, _ in rows}
    assert {str(day): amount for day, amount in project.rows("dwd.sliced")} == days


def computed(ran: RunResult) -> dict[str, str]:
    assert not ran.errors, ran.errors[0]
    return {table: action for table, action in did(ran).items() if table.startswith("dwd.")}


INCREMENTAL = {"dwd.sliced": "slices", "dwd.rows": "rows"}
FIRST = [(number, day, 1) for number, day in enumerate(DAYS)]


def test_a_reused_result_is_continued_from_the_version_that_was_published(project: Project) -> None:
    """The failed run read the file into data files of its own, which no later version has."""
    write_flow(project, FAILS)
    project.orders("a", *FIRST)
    failed(project)
    write_flow(project, WORKS)
    assert computed(project.run()) == {"dwd.sliced": "reuse", "dwd.rows": "reuse"}
    project.orders("b", (20, DAYS[1], 7))
    ran = project.run()
    assert computed(ran) == INCREMENTAL
    assert step_of(ran, "dwd.sliced").reason.startswith("1 of 9, ods.orders gained 1 row on 2026-01-02")
    assert step_of(ran, "dwd.rows").reason == "ods.orders gained 1 row in 1 file"
    check(project, [*FIRST, (20, DAYS[1], 7)])


@pytest.mark.parametrize("published", [False, True], ids=["nothing published", "published with other code"])
def test_what_a_failed_run_finished_is_continued(project: Project, published: bool) -> None:
    load(project, *FIRST)
    if published:
        write_flow(project, WORKS, manual=True)
        project.run()
    write_flow(project, FAILS, 2, manual=True)
    failed(project)
    load(project, (20, DAYS[1], 7))
    write_flow(project, WORKS, 2, manual=True)
    ran = project.run(verify=True)
    assert computed(ran) == INCREMENTAL
    why = step_of(ran, "dwd.rows").reason
    assert why.startswith("ods.orders gained 1 row in 1 file; starting from the result of run ")
    assert why.endswith(", which was not published")
    assert "starting from the result of run " in step_of(ran, "dwd.sliced").reason
    check(project, [*FIRST, (20, DAYS[1], 7)], 2)
    load(project, (21, DAYS[2], 7))
    assert computed(project.run()) == INCREMENTAL
    check(project, [*FIRST, (20, DAYS[1], 7), (21, DAYS[2], 7)], 2)


def test_the_base_with_the_least_change_is_chosen(project: Project) -> None:
    write_flow(project, WORKS)
    project.orders("a", *FIRST)
    project.run()
    write_flow(project, FAILS)
    project.orders("b", (20, DAYS[1], 7))
    failed(project)
    project.orders("c", (21, DAYS[2], 7))
    write_flow(project, WORKS)
    ran = project.run()
    assert computed(ran) == INCREMENTAL
    assert step_of(ran, "dwd.rows").reason == "ods.orders gained 2 rows in 2 files"
    check(project, [*FIRST, (20, DAYS[1], 7), (21, DAYS[2], 7)])


def test_a_result_that_is_continued_without_a_change_of_rows_is_published(project: Project) -> None:
    """The change leaves the rows of the task alone: what the failed run made is what the table gets."""
    write_flow(project, FAILS, manual=True)
    load(project, *FIRST)
    failed(project)
    load(project, (20, DAYS[1], 0))
    write_flow(project, WORKS, manual=True)
    ran = project.run()
    assert computed(ran) == INCREMENTAL
    check(project, [*FIRST, (20, DAYS[1], 0)])


def test_an_expected_step_compares_with_the_version_that_was_published(project: Project) -> None:
    """The failed run created the table in versions of its own; comparing with those, every column would differ."""
    flow = """
rn.source("ods.shops", rn.files("data/shops/*.csv", schema="id long"))

@rn.task("dwd.known")
def known(orders, shops):
    return orders.join(shops, "id", "left_semi")

@rn.task("dws.last")
def last(known):
    {body}
    return known
"""
    project.flow(flow.format(body=FAILS))
    project.orders("a", *FIRST)
    project.write("data/shops/a.csv", "id\n1\n")
    assert [error.code for error in project.run().errors] == ["RUN_TASK_FAILED"]
    project.flow(flow.format(body=WORKS))
    assert did(project.run())["dwd.known"] == "reuse"
    project.orders("b", (20, DAYS[1], 7))
    project.write("data/shops/b.csv", "id\n2\n")
    project.run("ods.orders")
    assert reasons(project.plan())["dwd.known"] == (
        "full: ods.shops gets 1 new file; ods.orders gained 1 row in 1 file"
    )
