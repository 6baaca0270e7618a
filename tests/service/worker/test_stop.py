"""What does not stop when it is told to: the run ends all the same, others are finished, the process is replaced."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.lake.control import queue_entry, run_queue
from runnel.lake.control.queue_entry import QueueEntry
from runnel.model.run_request import RunRequest
from runnel.run import step_executor, step_threads
from runnel.service.worker import worker
from runnel.service.worker.flow_cache import FlowCache
from runnel.service.worker.worker import Worker
from runnel.thread_interrupt import list_abandoned_threads
from tests.run.project import Project

FLOW = """
import time
from pathlib import Path

@rn.source("ods.gated", schema="id long")
def gated(state):
    while not (Path(__file__).parent.parent / "gate").exists():
        time.sleep(0.02)
    return [{"id": 1}], {"done": True}

@rn.source("ods.looping", schema="id long")
def looping(state):
    while True:
        time.sleep(0.01)
"""
TASK = """
@rn.task("dws.slow", timeout="1 second", retries=0)
def slow(orders):
    open(Path(__file__).parent.parent / "pipe").read()  # waits in C, where no exception reaches it
    return orders
"""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the grace short, and wait for what was left behind: other tests must not meet it."""
    for module in (step_executor, step_threads):
        monkeypatch.setattr(module, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(worker, "_GRACE_SECONDS", 2.0)
    yield
    until(lambda: not list_abandoned_threads(), "a thread stays behind")


@pytest.fixture
def plain(tmp_path: Path) -> Project:
    """Return a project that needs no Spark."""
    project = Project(tmp_path)
    project.flow(FLOW)
    project.orders("a", (1, "2026-01-01", 5))
    return project


def until(is_so: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def want(lake: Lake, *select: str, **options) -> str:
    entry = queue_entry.QueueRequest(RunRequest(select), "ada", **options)
    run_queue.submit(lake.store.db, entry)
    return entry.id


def get(lake: Lake, entry: str) -> QueueEntry:
    return lake.store.db.read(lambda connection: run_queue.find(connection, entry))


@contextmanager
def _write_at_the_end(pipe: Path) -> Iterator[None]:
    """Release whoever still reads from a pipe when the block ends."""
    try:
        yield
    finally:
        writer = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        os.write(writer, b".")
        os.close(writer)


def start(lake: Lake) -> Worker:
    worker = Worker(lake, FlowCache(lake, os.environ), name="w1", parallel=3)
    worker.start()
    return worker


def test_a_task_that_sleeps_fails_once_and_the_worker_is_replaced_after_its_other_runs(
    tmp_path: Path, spark: object
) -> None:
    project = Project(tmp_path, spark)  # type: ignore[arg-type]
    project.flow(FLOW + TASK)
    project.orders("a", (1, "2026-01-01", 5))
    os.mkfifo(tmp_path / "pipe")
    with project.open() as lake, _write_at_the_end(tmp_path / "pipe"):
        worker = start(lake)
        other = want(lake, "ods.gated")
        until(lambda: worker.active_run_ids == [other], "nobody took it")
        entry = want(lake, "+dws.slow")
        until(lambda: not get(lake, entry).is_open, "it goes on")
        found = get(lake, entry)
        assert (found.state, found.attempt) == ("failed", 1), "retries=0 of a task holds for the queue, too"
        assert "RUN_TIMEOUT" in str(found.outcome)
        until(worker.stop.is_set, "it takes more runs")
        late = want(lake, "ods.orders")
        assert worker.has_stuck_run and get(lake, other).state == "running"
        (project.root / "gate").touch()
        assert worker.end()
        assert (get(lake, other).state, get(lake, late).state) == ("succeeded", "queued")
        assert "dws.slow" not in lake.tables()


def test_python_code_ends_by_a_cancel_and_by_the_timeout_of_its_run(plain: Project) -> None:
    with plain.open() as lake:
        worker = start(lake)
        cancelled, late = want(lake, "ods.looping"), want(lake, "ods.looping", timeout_seconds=1, retries=0)
        until(lambda: len(worker.active_run_ids) == 2, "nobody took them")
        run_queue.cancel(lake.store.db, cancelled)
        until(lambda: not get(lake, cancelled).is_open and not get(lake, late).is_open, "they go on")
        assert (get(lake, cancelled).state, get(lake, late).state) == ("cancelled", "failed")
        assert "took longer than its timeout of 1 s" in str(get(lake, late).outcome)
        assert not worker.has_stuck_run and worker.end(), "nothing was left behind"


def test_a_run_that_is_stuck_before_its_first_step_is_ended_by_the_queue(plain: Project) -> None:
    plain.flow("import time\nfrom pathlib import Path\n\ntime.sleep(5)\n", "stuck.py", orders=None)
    with plain.open() as lake:
        worker = start(lake)
        entry = want(lake, "ods.orders", timeout_seconds=1, retries=0)
        until(lambda: not get(lake, entry).is_open, "it goes on")
        assert (get(lake, entry).state, worker.has_stuck_run) == ("failed", True)
        assert "took longer than its timeout of 1 s" in str(get(lake, entry).outcome)
        assert worker.end()
        until(lambda: not list_abandoned_threads(), "it stays behind")
        assert "ods.orders" not in lake.tables(), "its token is void: it can't publish"


def test_a_command_ends_at_once_although_its_task_does_not(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.flow("""
        import time
        from concurrent.futures import ThreadPoolExecutor

        @rn.source("ods.asleep", schema="id long")
        def asleep(state):
            return ThreadPoolExecutor(1).submit(time.sleep, 3600).result()
    """)
    rn.open(tmp_path).close()
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code += "; from runnel.run import step_executor; step_executor.GRACE_SECONDS = 0.5"
    code += "; from runnel.cli.main import main; main()"
    words = [sys.executable, "-c", code, "-C", str(tmp_path), "run", "-s", "ods.asleep", "--local"]
    log = tmp_path / "said.txt"
    with log.open("w") as file, subprocess.Popen(words, stdout=file, stderr=file) as process:
        until(lambda: "ods.asleep: ingest" in log.read_text(), "it did not begin")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130, log.read_text()
