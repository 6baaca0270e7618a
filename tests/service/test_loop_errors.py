"""One broken part of the service holds up no other, and has its own error, which `status` shows."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.lake.control import schedules, workers
from runnel.lake.control.declarations import read_sources
from runnel.lake.history.commits import CommitChange
from runnel.lake.publish import CommitDraft, publish
from runnel.names import TableName
from runnel.project.planning.plan_project import load_project_flow
from runnel.service.loop_errors import LoopProblems
from runnel.service.server.server_process import ServerProcess
from runnel.service.worker.continuous import ContinuousWork
from runnel.service.worker.flow_cache import FlowCache
from runnel.service.worker.loops.compaction_loop import MOST_FILES, CompactionLoop
from runnel.service.worker.loops.loop_context import LoopContext
from tests.lake.factories import add, create, rows

FLOW = """
import runnel as rn

rn.source("ods.orders", rn.manual())
rn.schedule("nightly", cron="0 2 * * *")
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setenv("RUNNEL__SERVICE__PORT", "0")
    (tmp_path / "flows").mkdir()
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "flows/flow.py").write_text(FLOW)
    with rn.open(tmp_path) as lake:
        yield lake


def until(is_so: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_flow_files_that_cannot_be_loaded_are_shown_until_they_are_mended(lake: Lake) -> None:
    flow, problems = lake.settings.root / "flows/flow.py", LoopProblems()
    flow.write_text(FLOW.replace("0 2 * * *", "0 0 31 2 *"))
    keeping = ContinuousWork(lake, FlowCache(lake, os.environ), "main", lambda _: None, problems=problems)
    keeping.start()
    try:
        until(problems.json, "it is not shown")
        (problem,) = problems.json()
        assert problem["part"] == "flows" and "'0 0 31 2 *' is never due" in problem["what"]
        flow.write_text(FLOW)
        until(lambda: not problems.json(), "it is still shown")
    finally:
        keeping.end()
    assert [one.name for one in lake.store.db.read(schedules.list_schedules)] == ["nightly"]
    assert lake.store.db.read(read_sources) is not None


def test_a_loop_of_the_service_that_fails_is_shown_and_the_others_go_on(lake: Lake) -> None:
    serving = ServerProcess(lake)
    failing, going_on = threading.Event(), threading.Event()

    def fail() -> None:
        failing.set()
        raise ZeroDivisionError("division by zero")

    loops = [
        serving._start_loop("runnel broken", 0.05, fail),
        serving._start_loop("runnel other", 0.05, going_on.set),
        serving._start_loop("runnel presence", 0.05, serving._send_heartbeat),
    ]

    def problems() -> list[str]:
        services = lake.status().presence.services
        return [one["what"] for service in services for one in service.detail["problems"]]

    until(problems, "it is not shown")
    assert problems() == ["ZeroDivisionError: division by zero"] and going_on.is_set()
    (line,) = [line for line in lake.status().presence.lines() if "broken" in line]
    assert line.endswith("UTC: ZeroDivisionError: division by zero"), line
    assert [one["part"] for one in lake.status().json()["services"][0]["problems"]] == ["broken"]
    serving.stop.set()
    for loop in loops:
        loop.join(10)
    workers.remove(lake.store.db, serving._name)
    serving._socket.close()


def test_upkeep_of_a_table_that_cannot_be_read_holds_up_no_other(lake: Lake) -> None:
    store, problems = lake.store, LoopProblems()
    broken, sound = TableName.parse("ods.broken"), TableName.parse("ods.sound")
    lost = CommitChange(broken, None, f"file://{lake.settings.root}/nowhere/metadata.json")
    publish(store.db, CommitDraft("main", "a table whose files are gone", "ada", (lost,)))
    create(store, str(sound), rows((0, "d", 1)))
    for number in range(1, MOST_FILES + 2):
        add(store, str(sound), rows((number, "d", 1)))

    def note(part: str, problem: str | None) -> None:
        problems.clear(part) if problem is None else problems.note(part, problem)

    context = LoopContext(lake, load_project_flow(lake), "main", "run", lambda _: None, note)
    upkeep = CompactionLoop(context, [broken, sound])
    assert upkeep.find_target_bytes(sound) is not None
    upkeep.start()
    until(lambda: upkeep.find_target_bytes(sound) is None, "it is not put together")
    until(problems.json, "what is wrong is not shown")
    context.stop.set()
    assert upkeep.join(30) and [one["part"] for one in problems.json()] == ["upkeep"]
