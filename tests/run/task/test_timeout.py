"""A timeout and a cancel end whatever a task does: Python code, calls that wait in C, and jobs of Spark."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from runnel.model.run_request import RunRequest
from runnel.project.execution.run_project import ClaimedRun, run_project
from runnel.run import step_executor, step_threads
from runnel.run.results.run_result import Event
from runnel.thread_interrupt import Interrupted, allow_interrupts, defer_interrupts, list_abandoned_threads
from tests.lake.factories import slots_in_use
from tests.run.project import Project

BODIES = {
    "a loop in Python": "while True: pass",
    "a loop that swallows exceptions": "while True:\n        try: sum(range(1000))\n        except Exception: pass",
    "sleep": "time.sleep(4)",
    "a socket": "one, other = socket.socketpair(); one.settimeout(4); one.recv(1)",
    "a Spark action": "orders.sparkSession.range(10**13).selectExpr('sum(hash(id))').collect()",
}
WAITS_IN_C = ("sleep", "a socket")
FLOW = """
import socket, time

@rn.task("dws.slow"{options})
def slow(orders):
    {body}
    return orders

@rn.task("dws.fine")
def fine(orders):
    return orders
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the grace short, and wait for what was left behind: other tests must not meet it."""
    for module in (step_executor, step_threads):
        monkeypatch.setattr(module, "GRACE_SECONDS", 0.6)
    yield
    until(lambda: not list_abandoned_threads(), "a thread stays behind")


def until(is_so: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.mark.parametrize("name", BODIES)
def test_a_timeout_ends_it(project: Project, name: str) -> None:
    project.flow(FLOW.format(options=', timeout="1 second"', body=BODIES[name]))
    project.orders("a", (1, "2026-01-01", 5))
    done = project.run()
    is_left = bool(list_abandoned_threads())
    (error,) = done.errors
    assert (done.state, error.code) == ("failed", "RUN_TIMEOUT")
    assert str(error).startswith(
        "RUN_TIMEOUT: `dws.slow` took longer than its timeout of 1 seconds and was stopped\n  at flows/"
    )
    assert {str(step.table): step.state for step in done.steps}["dws.fine"] == "succeeded", "others are finished"
    assert is_left == (name in WAITS_IN_C)
    until(lambda: not list_abandoned_threads(), "a thread stays behind")
    with project.open() as lake:
        assert "dws.slow" not in lake.tables()
        assert slots_in_use(lake.store) == []
    project.flow(FLOW.format(options="", body="pass"))
    assert project.run().state == "succeeded", "what was left behind has no part in what comes next"


@pytest.mark.parametrize("name", ["a loop in Python", "sleep", "a Spark action"])
def test_a_cancel_ends_it(project: Project, name: str) -> None:
    project.flow(FLOW.format(options="", body=BODIES[name]))
    project.orders("a", (1, "2026-01-01", 5))
    taken = ClaimedRun("20260102t080000-1a2b3c4d")

    def watch(event: Event) -> None:
        if event.kind == "start" and str(event.table) == "dws.slow":
            threading.Timer(0.5, taken.cancelled.set).start()

    with project.open() as lake:
        done = run_project(lake, RunRequest(), watch=watch, claimed_run=taken)
        assert (done.state, bool(list_abandoned_threads())) == ("cancelled", name in WAITS_IN_C)
        assert slots_in_use(lake.store) == [] and "dws.slow" not in lake.tables()


def test_what_must_not_be_torn_is_not() -> None:
    """An interruption waits for the end of a part that is protected, and is void after the work has ended."""
    inside, go_on, log = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        try:
            with allow_interrupts() as interruption:
                handles.append(interruption)
                with defer_interrupts(), defer_interrupts():
                    inside.set()
                    while not go_on.is_set():
                        pass
                    log.append("whole")
                while True:
                    pass
        except Interrupted:
            log.append("interrupted")
        sum(range(100_000))
        log.append("after")

    handles: list = []
    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(10)
    for _ in range(100):
        handles[0].interrupt()
    go_on.set()
    while thread.is_alive():
        handles[0].interrupt()
    handles[0].interrupt()
    assert log == ["whole", "interrupted", "after"]
