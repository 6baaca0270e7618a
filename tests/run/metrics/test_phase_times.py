"""Where the time of a run goes: what Spark tells of a step, how a pass is shared out, and what a run keeps of it."""

import itertools
from typing import TYPE_CHECKING

import pytest

from runnel.client.json_views.run import run_detail_json
from runnel.lake.control.run_history import RunRecord
from runnel.model.run_request import RunRequest
from runnel.phase_timer import PASS, PhaseClock, PhaseSegment, measure_phase, record_phases
from runnel.project.execution.run_project import run_project
from runnel.run.metrics.phase_times import split_passes, sum_by_phase
from runnel.run.metrics.spark_metrics import StageMetrics, read_stages, summarize_stages
from runnel.run.results.run_result import Event, RunResult
from tests.run.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READS = {"input_rows": 9}
MIXES = {"input_rows": 9, "output_rows": 9}
ENDS = {"shuffle_read_bytes": 5, "output_rows": 1}
# name: (the stages that ran in a pass from 10 to 20, what its time went to)
PASSES: dict[str, tuple[list[StageMetrics], dict[str, float]]] = {
    "Spark tells nothing": ([], {"compute": 10}),
    "one stage that does it all": ([StageMetrics(12, 19, **MIXES)], {"plan": 2, "compute": 7, "write": 1}),
    "a scan, a shuffle, a write": (
        [StageMetrics(11, 14, **READS), StageMetrics(14, 18, **ENDS)],
        {"plan": 1, "read": 3, "compute": 4, "write": 2},
    ),
    "two scans at once": (
        [StageMetrics(11, 14, **READS), StageMetrics(11, 16, **READS), StageMetrics(16, 20, **ENDS)],
        {"plan": 1, "read": 5, "compute": 4},
    ),
    "a scan beside something else": (
        [StageMetrics(10, 16, **READS), StageMetrics(14, 20, **ENDS)],
        {"read": 4, "compute": 6},
    ),
    "Spark thinks between stages": (
        [StageMetrics(10, 12, **READS), StageMetrics(15, 20, **ENDS)],
        {"read": 2, "compute": 8},
    ),
    "stages of before and after": ([StageMetrics(1, 9, **READS), StageMetrics(21, 25, **ENDS)], {"compute": 10}),
    "times that stick out": ([StageMetrics(9.999, 20.001, **MIXES)], {"compute": 10}),
}


@pytest.mark.parametrize(("ran", "expected"), PASSES.values(), ids=PASSES)
def test_a_pass_is_shared_out(ran: list[StageMetrics], expected: dict[str, float]) -> None:
    found = split_passes([PhaseSegment("plan", 0, 10), PhaseSegment(PASS, 10, 20)], ran)
    assert sum(one.seconds for one in found) == pytest.approx(20)
    assert sum_by_phase(found) == pytest.approx({**expected, "plan": 10 + expected.get("plan", 0)})


def test_a_clock_is_in_one_phase_at_a_time() -> None:
    with record_phases("plan") as clock:
        with measure_phase("compute"), measure_phase("check"):
            inside = PhaseClock("read").stop()
        did = clock.stop()
    assert [one.phase for one in did] == ["plan", "compute", "check", "compute", "plan"]
    assert all(one.end == other.start for one, other in itertools.pairwise(did))
    assert [one.phase for one in inside] == ["read"]
    with measure_phase("write"):
        assert clock.segments == list(did)  # nobody keeps a clock here


def test_spark_tells_what_it_did(spark: "SparkSession") -> None:
    """A task that takes far longer than the others, and a window that does not fit into its buffer."""
    session = spark.newSession()
    session.conf.set("spark.sql.windowExec.buffer.in.memory.threshold", "1")
    session.conf.set("spark.sql.windowExec.buffer.spill.threshold", "10")
    context = session.sparkContext
    try:
        context.setJobGroup("spent spill", "")
        session.sql("select sum(id) over (partition by id % 2) from range(100)").collect()
        context.setJobGroup("spent skew", "")
        nap = "reflect('java.lang.Thread', 'sleep', cast(if(id = 3, 600, 1) as bigint))"
        session.sql(f"select {nap} from range(0, 4, 1, 4)").collect()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    spill, skew = (
        summarize_stages(read_stages(session, "spent spill")),
        summarize_stages(read_stages(session, "spent skew")),
    )
    assert spill is not None and skew is not None
    assert spill["spill_memory_bytes"] > 0 and spill["tasks"] >= 2 and spill["shuffle_read_bytes"] > 0
    assert skew["tasks"] == 4
    assert skew["skew"]["longest_seconds"] >= max(0.6, skew["skew"]["median_seconds"]) and skew["skew"]["times"] >= 1
    assert read_stages(session, "nobody's") == () and summarize_stages(()) is None


def test_a_run_says_where_its_time_went(project: Project) -> None:
    project.flow("""
        @rn.task("dws.day", checks=[rn.unique("day"), rn.check("revenue > 0")])
        def day(orders):
            return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
    """)
    project.orders("a", (1, "2026-01-01", 5), (2, "2026-01-02", 7))
    ran = project.run()
    source, day = ran.steps
    assert source.spent["read"] > 0 and source.spark is None
    assert {"wait", "plan", "compute", "check", "write"} <= set(day.spent)
    assert sum(day.spent.values()) == pytest.approx(day.seconds + sum(day.waits.values()), abs=0.1)
    assert day.waits["inputs"] > 0
    assert day.spark is not None and day.spark["output_rows"] == 2 and day.spark["shuffle_write_bytes"] > 0
    with project.open() as lake:
        (found,) = lake.runs(ran.run)
    whole = run_detail_json(RunRecord(None, (found,)))
    assert (whole["spent"], whole["timeline"]) == (ran.spent, dict(ran.timeline))
    assert {"plan", "spark", "steps", "publish"} <= set(ran.timeline) and ran.timeline["queue"] == 0
    assert whole["steps"] == [step.json() for step in ran.steps]
    assert ran.spent["check"] == pytest.approx(day.spent["check"]) and "publish" in ran.spent


def test_a_failed_step_has_its_time_too(project: Project) -> None:
    project.flow("""
        @rn.task("dws.day", checks=[rn.row_count(min=3)])
        def day(orders):
            return orders
    """)
    project.orders("a", (1, "2026-01-01", 5))
    ran = project.run()
    assert ran.state == "failed" and "publish" not in ran.timeline
    assert ran.steps[1].state == "failed" and ran.steps[1].spent["check"] > 0


def test_a_run_that_is_planned_again(project: Project) -> None:
    """What was done before somebody else was faster is not planning."""
    project.flow("""
        @rn.task("dws.day")
        def day(orders):
            return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
    """)
    project.orders("a", (1, "2026-01-01", 5))
    others: list[RunResult] = []

    def watch(event: Event) -> None:
        if event.kind == "start" and str(event.table) == "dws.day" and not others:
            project.orders("b", (2, "2026-01-01", 7))
            others.append(project.run("ods.orders"))

    with project.open() as lake:
        ran = run_project(lake, RunRequest(), watch=watch)
    assert ran.state == "succeeded" and ran.timeline["again"] > 0
    assert "again" not in others[0].timeline
