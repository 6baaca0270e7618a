"""How a run goes: side by side, timed, tried again, planned again; what it leaves behind."""

import threading
from pathlib import Path

import pytest

from runnel.errors import Cancelled, Mistake, RunnelError, Unreachable, VersionConflict
from runnel.lake.flow_state import runs
from runnel.model.run_request import RunRequest
from runnel.project.execution.run_project import run_project
from runnel.run.results.run_result import Event
from runnel.run.retry import retry_transient
from tests.lake.factories import slots_in_use
from tests.run.project import Project, did

pytestmark = pytest.mark.cluster

DAYS = """
@rn.task("dws.day")
def day(orders):
    return orders.groupBy("day").agg(F.sum("amount").alias("revenue"))
"""
SLOW = """
import time

def slowly(x):
    time.sleep(30)
    return x

@rn.task("dws.slow", timeout="1 second")
def slow(orders):
    return orders.select(F.udf(slowly, "long")("id").alias("id"))
"""


def test_somebody_else_was_faster(project: Project) -> None:
    """Another run publishes the same source's table while this one computes: this one is planned again."""
    project.flow(DAYS)
    project.orders("a", (1, "2026-01-01", 5))
    other = []

    def watch(event: Event) -> None:
        if event.kind == "start" and str(event.table) == "dws.day" and not other:
            project.orders("b", (2, "2026-01-01", 7))
            other.append(project.run("ods.orders"))

    with project.open() as lake:
        done = run_project(lake, RunRequest(), watch=watch)
    assert (done.state, other[0].state) == ("succeeded", "succeeded")
    assert [row[1] for row in project.rows("dws.day")] == [12]
    assert len(project.rows("ods.orders")) == 2


def test_another_run_did_the_same_work(project: Project) -> None:
    """The other run publishes exactly what this one computes: planned again, nothing is left to do."""
    project.flow(DAYS)
    project.orders("a", (1, "2026-01-01", 5))
    seen: list[str] = []

    def watch(event: Event) -> None:
        if event.kind == "end" and str(event.table) == "dws.day" and not seen:
            seen.append(project.run().state)
        elif event.kind == "note":
            with project.open() as second:
                seen.append(second.store.db.read(runs.list_runs)[-1].state)

    with project.open() as lake:
        done = run_project(lake, RunRequest(), watch=watch)
        assert (done.state, seen) == ("nothing", ["succeeded", "running"])
        assert sorted((run.state, run.commit is None) for run in lake.store.db.read(runs.list_runs)) == [
            ("nothing", True),
            ("succeeded", False),
        ]


def test_a_run_that_is_always_overtaken_has_failed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.project.execution.run_project._ATTEMPTS", 1)
    project.flow(DAYS)
    project.orders("a", (1, "2026-01-01", 5))
    other: list[str] = []

    def watch(event: Event) -> None:
        if event.kind == "start" and str(event.table) == "dws.day" and not other:
            project.orders("b", (2, "2026-01-01", 7))
            other.append(str(project.run("ods.orders").run))

    with project.open() as lake:
        with pytest.raises(VersionConflict):
            run_project(lake, RunRequest(), watch=watch)
        states = {run.id: (run.state, run.commit is None) for run in lake.store.db.read(runs.list_runs)}
    assert states.pop(other[0]) == ("succeeded", False)
    assert list(states.values()) == [("failed", True)]


def test_a_task_that_takes_too_long(project: Project) -> None:
    project.flow(SLOW)
    project.orders("a", (1, "2026-01-01", 5))
    (error,) = project.run().errors
    assert error.code == "RUN_TIMEOUT" and "1 second" in error.what


def test_nothing_is_left_behind(project: Project) -> None:
    project.flow(DAYS)
    project.orders("a", (1, "2026-01-01", 5))
    done = project.run()
    with project.open() as lake:
        assert slots_in_use(lake.store) == []
        (known,) = lake.store.db.read(runs.list_runs)
        assert (known.id, known.state, known.commit) == (done.run, "succeeded", done.commit)
        commit = lake.log(limit=1)[0]
        assert (commit.run, commit.kind) == (done.run, "run")
        from runnel.lake.upkeep.fsck.fsck import fsck

        assert fsck(lake.store).is_clean
    assert Path(str(done.log)).read_text().count("succeeded dws.day full") == 1


def test_independent_tasks_go_side_by_side(project: Project) -> None:
    project.flow("""
    for name in ("one", "two", "three"):
        @rn.task(f"dws.{name}", inputs={"orders": "ods.orders"})
        def each(orders):
            return orders.select("id")
    """)
    project.orders("a", (1, "2026-01-01", 5))
    project.run("ods.orders")
    under_way, most, guard = set(), [0], threading.Lock()

    def watch(event: Event) -> None:
        with guard:
            if event.kind == "start":
                under_way.add(event.table)
            elif event.kind == "end":
                under_way.discard(event.table)
            most[0] = max(most[0], len(under_way))

    with project.open() as lake:
        assert set(did(run_project(lake, RunRequest(), watch=watch)).values()) == {"full"}
    assert most[0] >= 2


def test_a_lost_connection_is_tried_again() -> None:
    tried, paused = [], []

    def work() -> int:
        tried.append(1)
        if len(tried) < 3:
            raise Unreachable("DATABASE_UNREACHABLE", "gone")
        return 7

    assert retry_transient(work, 2, threading.Event(), paused.append) == 7
    assert [(failed_attempt.number, failed_attempt.pause_seconds) for failed_attempt in paused] == [(1, 1.0), (2, 2.0)]


@pytest.mark.parametrize("error", [Mistake("RUN_COLUMN_UNKNOWN", "no such column"), RunnelError("CHECK_FAILED", "x")])
def test_a_wrong_column_is_never_tried_again(error: RunnelError) -> None:
    def work() -> None:
        raise error

    with pytest.raises(RunnelError) as caught:
        retry_transient(work, 5, threading.Event(), lambda *_: pytest.fail("tried again"))
    assert caught.value is error


def test_a_cancelled_run_is_not_tried_again() -> None:
    cancelled = threading.Event()

    def work() -> None:
        cancelled.set()
        raise Unreachable("DATABASE_UNREACHABLE", "gone")

    with pytest.raises((Cancelled, Unreachable)):
        retry_transient(work, 5, cancelled, lambda *_: None)
