"""Branches that both set rows aside are merged: what a task set aside is computed with its table, in one commit."""

import pytest

from runnel.lake.merge.merge import NeedsRun
from tests.run.project import Project, did

FLOW = """
@rn.task("dwd.paid", checks=[rn.check("amount >= {least}", on_fail="quarantine")])
def paid(orders):
    return orders

@rn.task("dws.total")
def total(paid):
    return paid.agg(F.sum("amount").alias("amount"))
"""
DAY = "2026-01-01"


def quarantined(project: Project) -> list[str]:
    with project.open() as lake:
        return sorted(row.raw or "" for row in lake.quarantine("dwd.paid"))


def start(project: Project) -> None:
    project.flow(FLOW.format(least=0))
    project.orders("a", (1, DAY, 5), (2, DAY, -1))
    assert project.run().state == "succeeded"
    with project.open() as lake:
        lake.branch("dev")


def check_merge(project: Project, listed: list[str]) -> None:
    with project.open() as lake:
        with pytest.raises(NeedsRun) as raised:
            lake.merge("dev")
        assert [str(step.table) for step in raised.value.tables] == listed
        commits = len(lake.log("main"))
        merged = lake.merge("dev", run=True)
        assert merged.commit is not None and len(lake.log("main")) == commits + 1
        changed = {str(step.table): step.reason for step in merged.plan.steps}
    assert changed["quarantine.dwd_paid"] == "the checks of dwd.paid set rows aside on both main and dev"
    assert did(project.run()) == {}


def test_code_that_sets_fewer_rows_aside_is_merged_after_main_set_more_aside(project: Project) -> None:
    start(project)
    project.flow(FLOW.format(least=-1))
    assert project.run(branch="dev").state == "succeeded"
    project.flow(FLOW.format(least=0))
    project.orders("b", (3, DAY, 7), (4, DAY, -9))
    assert project.run().state == "succeeded"
    assert [row.count("-") for row in quarantined(project)] == [3, 3]
    project.flow(FLOW.format(least=-1))
    check_merge(project, ["dwd.paid", "dws.total", "quarantine.dwd_paid"])
    assert [row for row in quarantined(project) if "-9" in row] == quarantined(project) and len(
        quarantined(project)
    ) == 1
    assert [row[0] for row in project.rows("dwd.paid")] == [1, 2, 3]
    assert project.rows("dws.total") == [(11,)]


def test_the_table_itself_may_have_changed_on_one_side_only(project: Project) -> None:
    """On main every new row is bad, so that the task's table keeps its rows."""
    start(project)
    project.flow(FLOW.format(least=-1))
    assert project.run(branch="dev").state == "succeeded"
    project.flow(FLOW.format(least=0))
    project.orders("b", (4, DAY, -9))
    assert project.run().state == "succeeded"
    project.flow(FLOW.format(least=-1))
    check_merge(project, ["quarantine.dwd_paid"])
    assert len(quarantined(project)) == 1 and [row[0] for row in project.rows("dwd.paid")] == [1, 2]
    assert project.rows("dws.total") == [(4,)]
