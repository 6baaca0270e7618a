"""A worker takes runs off the queue, renews its claims, stops when told, and gives back what it can't finish."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.errors import Mistake, RunnelError, find_disk_full
from runnel.lake.catalog import schema
from runnel.lake.control import queue_entry, run_queue
from runnel.lake.control.queue_entry import QueueEntry
from runnel.model.run_request import RunRequest
from runnel.model.worker_request import PlanRequest, QueryRequest
from runnel.project.execution.follow_run import follow_run, has_worker, submit_request
from runnel.project.spark_provider import SparkProvider
from runnel.run.results.run_result import Event
from runnel.service.worker.flow_cache import FlowCache
from runnel.service.worker.worker import Worker

FLOW = """
import runnel as rn
import time
from pathlib import Path

rn.source("ods.orders", rn.files("data/orders/*.csv", schema="id long, amount long"))

@rn.source("ods.slow", schema="id long")
def slow(state):
    gate = Path(__file__).parent.parent / "gate"
    for _ in range(600):
        if gate.exists():
            break
        time.sleep(0.1)
    return [{"id": 1}], {"done": True}
"""
WAIT_SECONDS = 30


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    (tmp_path / "flows").mkdir()
    (tmp_path / "data/orders").mkdir(parents=True)
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows/flow.py").write_text(FLOW)
    (tmp_path / "data/orders/a.csv").write_text("id,amount\n1,10\n2,20\n")
    with rn.open(tmp_path) as lake:
        yield lake


@pytest.fixture
def worker(lake: Lake) -> Iterator[Worker]:
    worker = Worker(lake, FlowCache(lake, os.environ), name="w1", parallel=2)
    worker.start()
    yield worker
    (lake.settings.root / "gate").touch()
    worker.end()


def want(lake: Lake, *select: str, **options) -> str:
    return submit_request(lake, RunRequest(select or ("ods.orders",), **options))


def get(lake: Lake, entry: str) -> QueueEntry:
    return lake.store.db.read(lambda connection: run_queue.find(connection, entry))


def until(is_so: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_a_run_is_taken_followed_and_published(lake: Lake, worker: Worker) -> None:
    seen: list[Event] = []
    entry = want(lake, message="by hand")
    done = follow_run(lake, entry, seen.append)
    assert (done.state, done.run, done.commit) == ("succeeded", entry, lake.log()[0].id)
    assert [(str(step.table), step.rows, step.action) for step in done.steps if step.rows] == [
        ("ods.orders", 2, "ingest")
    ]
    assert [event.kind for event in seen if event.kind != "progress"] == ["start", "end"]
    assert (lake.log()[0].message, lake.log()[0].run) == ("by hand", entry)
    assert follow_run(lake, want(lake)).state == "nothing"


def test_is_served_only_while_it_is_there(lake: Lake) -> None:
    assert not has_worker(lake)
    worker = Worker(lake, FlowCache(lake, os.environ), parallel=1)
    worker.start()
    assert has_worker(lake)
    assert worker.end()
    assert not has_worker(lake)


def test_a_mistake_is_told_as_if_it_were_computed_here(lake: Lake, worker: Worker) -> None:
    with pytest.raises(Mistake, match=r"close: `ods\.orders`") as told:
        follow_run(lake, want(lake, "ods.ordres"))
    assert told.value.exit_code == 2


def test_a_mistake_in_a_flow_file_is_told_and_mended(lake: Lake, worker: Worker) -> None:
    path = lake.settings.root / "flows/flow.py"
    path.write_text(FLOW + "\nrn.schedule('n', every='x')\n")
    with pytest.raises(RunnelError, match="must be a duration"):
        follow_run(lake, want(lake))
    path.write_text(FLOW)
    assert follow_run(lake, want(lake)).state == "succeeded"


def test_changed_files_are_picked_up(lake: Lake, worker: Worker) -> None:
    follow_run(lake, want(lake))
    path = lake.settings.root / "flows/flow.py"
    path.write_text(FLOW + '\nrn.source("ods.more", rn.files("data/orders/*.csv", schema="id long, amount long"))\n')
    assert follow_run(lake, want(lake, "ods.more")).state == "succeeded"


def test_cancelled_while_it_waits_for_a_source(lake: Lake, worker: Worker) -> None:
    entry = want(lake, "ods.slow")
    until(lambda: worker.active_run_ids == [entry], "nobody took it")
    run_queue.cancel(lake.store.db, entry)
    (lake.settings.root / "gate").touch()
    assert follow_run(lake, entry).state == "cancelled"
    assert "ods.slow" not in lake.tables()


def test_two_at_a_time_and_a_slow_one_holds_up_no_other(lake: Lake, worker: Worker) -> None:
    slow = want(lake, "ods.slow")
    until(lambda: worker.active_run_ids == [slow], "nobody took it")
    assert follow_run(lake, want(lake)).state == "succeeded"
    (lake.settings.root / "gate").touch()
    done = follow_run(lake, slow)
    assert done.state == "succeeded", done.errors


def test_who_lost_the_claim_publishes_nothing(lake: Lake, worker: Worker) -> None:
    """It was taken for dead, and another took the run over; then it comes back."""
    entry = want(lake, "ods.slow")
    until(lambda: worker.active_run_ids == [entry], "nobody took it")
    taken_over = schema.queue.update().values(worker="w2", token="another", attempt=2)
    lake.store.db.write(lambda connection: connection.execute(taken_over))  # at once: else it would take it again
    (lake.settings.root / "gate").touch()
    until(lambda: worker.active_run_ids == [], "it did not end")
    assert "ods.slow" not in lake.tables()
    assert get(lake, entry).worker == "w2"


def test_what_it_cannot_finish_is_given_back(lake: Lake) -> None:
    worker = Worker(lake, FlowCache(lake, os.environ), name="w1", parallel=1)
    worker.start()
    entry = want(lake, "ods.slow")
    until(lambda: worker.active_run_ids == [entry], "nobody took it")
    assert worker.end(seconds=0.2) is False
    assert get(lake, entry).state == "queued"
    (lake.settings.root / "gate").touch()


PASSING = {
    "no room on the disk": ('OSError(28, "No space left on device")', "DISK_FULL", 3),
    "others were faster": ('VersionConflict("main", ["ods.odd"])', "PUBLISH_MOVED", 2),
}


@pytest.mark.parametrize(("error", "code", "retries"), PASSING.values(), ids=PASSING)
def test_what_may_pass_is_tried_again(lake: Lake, worker: Worker, error: str, code: str, retries: int) -> None:
    (lake.settings.root / "flows/odd.py").write_text(f"""
import runnel as rn
from pathlib import Path
from runnel.errors import VersionConflict

@rn.source("ods.odd", schema="id long")
def odd(state):
    if not (Path(__file__).parent.parent / "gate").exists():
        raise {error}
    return [{{"id": 1}}], {{"done": True}}
""")
    entry = want(lake, "ods.odd")
    until(lambda: get(lake, entry).not_before, "it was not tried")
    found = get(lake, entry)
    assert (found.state, found.attempt, found.retries, code in str(found.outcome)) == ("queued", 1, retries, True)
    (lake.settings.root / "gate").touch()
    lake.store.db.write(lambda connection: connection.execute(schema.queue.update().values(not_before="")))
    assert follow_run(lake, entry).state == "succeeded"


def test_no_room_for_spark_is_no_wish_to_stop(lake: Lake, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that breaks off stops its own steps; that nobody asked it to is still known."""

    def full(_: SparkProvider, *, brief: bool = False) -> None:
        raise find_disk_full(OSError(28, "No space left on device")) or AssertionError("it is told otherwise")

    monkeypatch.setattr(SparkProvider, "get", full)
    (lake.settings.root / "flows/task.py").write_text("""
import runnel as rn

@rn.task("dwd.orders")
def orders(orders):
    return orders
""")
    entry = want(lake, "+dwd.orders")
    until(lambda: get(lake, entry).not_before or not get(lake, entry).is_open, "it was not tried")
    found = get(lake, entry)
    assert (found.state, found.attempt, "DISK_FULL" in str(found.outcome)) == ("queued", 1, True)


def test_longer_than_it_may(lake: Lake, worker: Worker) -> None:
    entry = queue_entry.QueueRequest(RunRequest(("ods.slow",)), "ada", timeout_seconds=1, retries=0)
    run_queue.submit(lake.store.db, entry)
    opened = threading.Timer(3, (lake.settings.root / "gate").touch)
    opened.start()
    with pytest.raises(RunnelError, match="longer than its timeout of 1 s"):
        follow_run(lake, entry.id)
    opened.cancel()


def test_a_plan_and_a_query_are_answered(lake: Lake, worker: Worker) -> None:
    def ask(request: PlanRequest | QueryRequest) -> Mapping[str, Any]:
        entry = queue_entry.QueueRequest(request, "ada", retries=0)
        run_queue.submit(lake.store.db, entry)
        until(lambda: not get(lake, entry.id).is_open, "nobody answers")
        return get(lake, entry.id).outcome or {}

    steps = ask(PlanRequest(RunRequest(("ods.orders",))))["steps"]
    assert [(step["table"], step["action"]) for step in steps] == [("ods.orders", "ingest")]
    follow_run(lake, want(lake))
    found = ask(QueryRequest("select id, amount from ods.orders order by id", limit=1))
    assert (found["columns"], found["rows"], found["more"]) == (["id", "amount"], [[1, 10]], True)
    assert ask(QueryRequest("select nothing from ods.orders"))["error"]["code"] == "SQL_COLUMN"


def test_what_a_schedule_queued_that_is_no_longer_declared_is_not_run(lake: Lake, worker: Worker) -> None:
    entry = queue_entry.QueueRequest(RunRequest(("ods.orders",)), "scheduler", cause="schedule/removed")
    run_queue.submit(lake.store.db, entry)
    until(lambda: not get(lake, entry.id).is_open, "nobody took it")
    found = get(lake, entry.id)
    assert (found.state, found.attempt, "ods.orders" in lake.tables()) == ("cancelled", 1, False)
    assert (found.outcome or {})["error"]["what"] == (
        "schedule `removed` is no longer declared, so the run that it queued is not executed"
    )
