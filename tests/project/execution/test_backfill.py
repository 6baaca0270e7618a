"""Slices of some days are computed again, chunk by chunk, with everything downstream; on real Spark and Iceberg."""

from typing import Any

import pytest

from runnel.errors import Mistake, RunnelError
from runnel.project.execution.backfill import BackfillPreview, BackfillResult
from tests.run.project import Project, did

FLOW = """
import pathlib
FACTOR = pathlib.Path("{root}/factor")

@rn.task("dws.day", by="day")
def day(orders):
    factor = int(FACTOR.read_text())  # unseen by Runnel, so that a backfill has something to find
    return orders.groupBy("day").agg((F.sum("amount") * F.lit(factor)).alias("revenue"))

@rn.task("dws.id_day", by=["id", "day"])
def id_day(orders):
    factor = int(FACTOR.read_text())
    return orders.groupBy("id", "day").agg((F.sum("amount") * F.lit(factor)).alias("revenue"))

@rn.task("dws.double", inputs={{"day": "dws.day"}}, by="day")
def double(day):
    return day.select("day", (F.col("revenue") * 2).alias("revenue"))

@rn.task("dws.total", inputs={{"day": "dws.day"}})
def total(day):
    return day.agg(F.sum("revenue").alias("revenue"))
"""


@pytest.fixture
def shop(project: Project) -> Project:
    """Orders of ten days, run once; from then on each order counts twice."""
    project.flow(FLOW.format(root=project.root))
    project.write("factor", "1")
    for number in range(1, 11):
        project.orders(f"{number}", (number, f"2026-01-{number:02}", number))
    assert project.run().errors == ()
    project.write("factor", "2")
    return project


def backfill(project: Project, first: str, last: str, select: str = "ods.orders", **options: Any) -> BackfillResult:
    with project.open() as lake:
        return lake.backfill(select, first, last, **options)


def preview(project: Project, first: str, last: str, select: str = "ods.orders", **options: Any) -> BackfillPreview:
    with project.open() as lake:
        return lake.preview(select, first, last, **options)


def revenue(project: Project, table: str = "dws.day") -> list[int]:
    return [row[-1] for row in sorted(project.rows(table))]


def test_days_are_computed_again_with_everything_downstream(shop: Project) -> None:
    shop.orders("new", (99, "2026-01-09", 100))  # sources are not read
    before = shop.commits()
    done = backfill(shop, "2026-01-03", "2026-01-04")
    assert (done.state, done.next, shop.commits()) == ("succeeded", None, before + 1)
    assert did(done.runs[0]) == {
        "dws.day": "slices",
        "dws.id_day": "slices",
        "dws.double": "slices",
        "dws.total": "full",
    }
    assert revenue(shop) == [1, 2, 6, 8, 5, 6, 7, 8, 9, 10]
    assert revenue(shop, "dws.id_day") == revenue(shop)
    assert revenue(shop, "dws.double") == [2, 4, 12, 16, 10, 12, 14, 16, 18, 20]
    assert revenue(shop, "dws.total") == [62]
    step = done.runs[0].steps[0]
    assert step.reason == "2 of 10, requested by backfill, 2026-01-03 to 2026-01-04"
    again = backfill(shop, "2026-01-03", "2026-01-04")
    assert (again.state, again.runs[0].commit, shop.commits()) == ("nothing", None, before + 1)


def test_chunks_are_commits_and_what_has_no_dates_is_computed_once_unless_it_changes(shop: Project) -> None:
    found = preview(shop, "2026-01-01", "2026-01-04", "dws.day", chunk="2d")
    assert [str(chunk) for chunk in found.chunks] == ["2026-01-01 to 2026-01-02", "2026-01-03 to 2026-01-04"]
    assert {str(line.table): (line.action, line.chunks, line.slices) for line in found.tables} == {
        "dws.day": ("slices", 2, 4),
        "dws.double": ("slices", 2, 4),
        "dws.total": ("full", 1, None),
    }
    assert found.tables[0].rows == 4 and found.rows > 4 and found.bytes > 0
    before = shop.commits()
    done = backfill(shop, "2026-01-01", "2026-01-04", "dws.day", chunk="2d")
    assert [did(run)["dws.total"] for run in done.runs] == ["full", "full"]
    assert shop.commits() == before + 2
    done = backfill(shop, "2026-01-01", "2026-01-04", "dws.day", chunk=2)
    assert (done.state, ["dws.total" in did(run) for run in done.runs]) == ("nothing", [True, False])


def test_a_chunk_that_fails_says_where_to_go_on(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from runnel.project.execution import run_project as running

    real, calls = running.run_project, list[str]()

    def run_project(*given: Any, **options: Any) -> Any:
        calls.append(str(given[1].days))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given, **options)

    monkeypatch.setattr(running, "run_project", run_project)
    done = backfill(shop, "2026-01-01", "2026-01-06", "dws.day", chunk="2d")
    assert (done.state, str(done.next), len(done.runs)) == ("cancelled", "2026-01-03 to 2026-01-04", 1)
    assert done.json()["next"] == "2026-01-03" and revenue(shop)[:3] == [2, 4, 3]
    shop.write("factor", "nonsense")
    monkeypatch.undo()
    with pytest.raises(RunnelError, match="nonsense"):
        backfill(shop, "2026-01-03", "2026-01-06", "dws.day", chunk="2d")


def test_days_without_data_and_most_days(shop: Project) -> None:
    assert backfill(shop, "2026-03-01", "2026-03-31").state == "nothing"
    found = preview(shop, "2026-01-01", "2026-01-08", "dws.day")
    assert (found.tables[0].action, found.tables[0].reason) == (
        "full",
        "8 of 10, requested by backfill, 2026-01-01 to 2026-01-08: that is most of them",
    )
    backfill(shop, "2026-01-01", "2026-01-08", "dws.day")
    assert revenue(shop)[:9] == [2, 4, 6, 8, 10, 12, 14, 16, 18]


WRONG = {
    "unknown": ("dws.dya", "PLAN_SELECTS_NOTHING"),
    "no task": ("ods.lonely", "BACKFILL_NO_TASK"),
}


@pytest.mark.parametrize(("select", "code"), WRONG.values(), ids=WRONG)
def test_wrong_selections(project: Project, select: str, code: str) -> None:
    project.flow("""
    rn.source("ods.lonely", rn.manual(schema="a long"))

    @rn.task("dws.day", by="day")
    def day(orders):
        return orders
    """)
    with pytest.raises(Mistake) as caught:
        preview(project, "2026-01-01", "2026-01-02", select)
    assert caught.value.code == code and caught.value.fix
