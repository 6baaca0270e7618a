"""A task with the keyword parameter `scheduled_at` gets the time for which a schedule queued the run."""

from datetime import UTC, datetime

import runnel as rn
from runnel.declare.registry import collect_declarations
from runnel.model.run_request import RunRequest
from runnel.project.execution.run_project import ClaimedRun, run_project
from runnel.run.results.run_result import RunResult
from tests.run.project import Project

FLOW = """
@rn.task("dws.plain")
def plain(orders, *, scheduled_at):
    return orders.select("id", F.lit(str(scheduled_at)).alias("at"))

@rn.task("dws.volatile", volatile=True)
def volatile(orders, *, scheduled_at, low: int = 0):
    return orders.where(orders.amount > low).select("id", F.lit(str(scheduled_at)).alias("at"))
"""


def run_for(project: Project, number: int, due: str | None) -> RunResult:
    with project.open() as lake:
        claimed_run = ClaimedRun(f"20260102t020000-aaaaaaa{number}", cause="schedule/nightly", due=due)
        return run_project(lake, RunRequest(), claimed_run=claimed_run)


def stored_times(project: Project, table: str) -> list[str]:
    with project.open() as lake:
        return [row[0] for row in lake.query(f"select at from {table}").rows()]


def test_the_time_of_the_schedule(project: Project) -> None:
    project.flow(FLOW)
    project.orders("a", (1, "2026-01-01", 5))
    assert run_for(project, 1, "2026-01-02T02:00:00Z").state == "succeeded"
    assert stored_times(project, "dws.plain") == stored_times(project, "dws.volatile") == ["2026-01-02 02:00:00+00:00"]
    actions = {str(step.table): step.action for step in run_for(project, 2, "2026-01-03T02:00:00Z").steps}
    assert actions["dws.plain"] == "skip"  # the time is no part of its fingerprint
    assert stored_times(project, "dws.plain") == ["2026-01-02 02:00:00+00:00"]
    assert stored_times(project, "dws.volatile") == ["2026-01-03 02:00:00+00:00"]
    run_for(project, 3, None)
    assert stored_times(project, "dws.volatile") == ["None"]


def test_the_time_in_a_test(spark) -> None:
    from pyspark.sql import functions as F

    with collect_declarations("/nowhere") as registry:
        registry.root = None
        rn.source("ods.orders", rn.manual(schema="id long"))

        @rn.task("dws.report")
        def report(orders, *, scheduled_at):
            return orders.select("id", F.lit(scheduled_at is not None and scheduled_at.hour).alias("hour"))

        at = datetime(2026, 1, 2, 2, tzinfo=UTC)
        assert rn.testing.run(report, orders=[{"id": 1}], scheduled_at=at).rows == [{"id": 1, "hour": 2}]
        assert rn.testing.run(report, orders=[{"id": 1}]).rows == [{"id": 1, "hour": False}]
