"""`runnel runs` and `runnel logs` show every attempt of a run, and for which time a schedule queued it."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import runnel as rn
from runnel.client.lake import Lake
from runnel.lake.catalog import schema
from runnel.lake.control import run_claims, run_queue, workers
from runnel.lake.control.queue_entry import QueueRequest
from runnel.lake.flow_state import runs
from runnel.model.run_request import RunRequest
from runnel.model.schedule_slot import ScheduleSlot

DUE = datetime(2026, 1, 2, 2, tzinfo=UTC)
LOST = {"code": "RUN_LOST", "what": "the worker that ran it ended or stopped responding", "at": None, "fix": None}


def attempt(lake: Lake, worker: str, *, log: str | None, state: str = "failed", **outcome) -> None:
    """Let a worker claim the next run, write a log if it gets that far, and end it."""
    db = lake.store.db
    db.write(lambda connection: connection.execute(schema.queue.update().values(not_before="")))
    entry = run_claims.claim(db, worker)
    assert entry is not None
    if log is not None:
        runs.start(db, entry.run, "main", "scheduler", {"tables": ["ods.orders"]})
        folder = lake.settings.home / "logs" / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{entry.run}.log").write_text(log)
        runs.finish(db, entry.run, state, None, {"steps": []})
    run_claims.finish(db, entry.claim, state, outcome, retry=state == "failed")


@pytest.fixture
def run_id(shop, tmp_path: Path) -> str:
    """A run of a schedule with three attempts: lost before it started, failed, succeeded."""
    slot = ScheduleSlot("nightly", DUE)
    request = QueueRequest(RunRequest(), "scheduler", cause="schedule/nightly", schedule_slot=slot)
    with rn.open(tmp_path) as lake:
        run_queue.submit(lake.store.db, request)
        attempt(lake, "w1", log=None, error=LOST)
        attempt(lake, "w2", log="second\n", error={**LOST, "code": "SOURCE_UNREACHABLE", "what": "no route"})
        attempt(lake, "w3", log="third\n", state="succeeded")
    return request.id


def test_every_attempt_is_shown(shop, run_id: str, tmp_path: Path) -> None:
    lines = re.sub(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", shop("runs", run_id).out).splitlines()
    assert lines[0].startswith(f"run {run_id}  succeeded on main, started TIME UTC by scheduler, ")
    folder = tmp_path / ".runnel/logs/runs"
    assert lines[1:] == [
        "scheduled for TIME UTC by schedule nightly",
        "attempt 1: failed, TIME to TIME UTC, worker w1",
        f"  log {folder}/{run_id}.log",
        "  RUN_LOST: the worker that ran it ended or stopped responding",
        "attempt 2: failed, TIME to TIME UTC, worker w2",
        f"  log {folder}/{run_id}-2.log",
        "  SOURCE_UNREACHABLE: no route",
        "attempt 3: succeeded, TIME to TIME UTC, worker w3",
        f"  log {folder}/{run_id}-3.log",
    ]


def test_attempts_as_json(shop, run_id: str) -> None:
    body = shop("runs", run_id, "--json").json
    assert body["scheduled_at"] == "2026-01-02T02:00:00Z"
    attempts = body["attempts"]
    assert [(item["attempt"], item["state"], item["worker"]) for item in attempts] == [
        (1, "failed", "w1"),
        (2, "failed", "w2"),
        (3, "succeeded", "w3"),
    ]
    assert body["started_at"] == attempts[0]["started_at"] < attempts[2]["started_at"]
    assert [item["error"] and item["error"]["code"] for item in attempts] == ["RUN_LOST", "SOURCE_UNREACHABLE", None]
    assert [item["log"] for item in attempts][1:] == [f"logs/runs/{run_id}-2.log", f"logs/runs/{run_id}-3.log"]
    (listed,) = shop("runs", "--json").json
    assert (listed["scheduled_at"], listed["started_at"]) == (body["scheduled_at"], body["started_at"])


def test_a_list_shows_the_scheduled_time(shop, run_id: str) -> None:
    listed = shop("runs").out.splitlines()
    assert "scheduled (UTC)" in listed[0] and "schedule nightly  2026-01-02 02:00:00" in listed[-1]


def test_logs_of_all_attempts(shop, run_id: str) -> None:
    assert shop("logs", run_id).out == (
        "attempt 1 on worker w1: failed; its log is not on this machine\n"
        "attempt 2 on worker w2: failed\nsecond\n"
        "attempt 3 on worker w3: succeeded\nthird\n"
    )
    assert shop("logs", run_id, "--attempt", "2").out == shop("logs", f"{run_id}-2").out == "second\n"
    body = shop("logs", run_id, "--json").json
    assert (body["run"], [item["attempt"] for item in body["attempts"]]) == (f"{run_id}-3", [1, 2, 3])
    missing = shop("logs", run_id, "--attempt", "1")
    assert missing.code == 2 and f"LOG_MISSING: the log of run {run_id} is not on this machine" in missing.err
    unknown = shop("logs", run_id, "--attempt", "4")
    assert unknown.code == 2 and f"run {run_id} has no attempt 4; it has 3 attempts" in unknown.err
    assert f"`runnel runs {run_id}` lists its attempts" in unknown.err


def test_a_running_attempt_has_no_error(shop, tmp_path: Path) -> None:
    request = QueueRequest(RunRequest(), "scheduler", cause="schedule/nightly")
    with rn.open(tmp_path) as lake:
        run_queue.submit(lake.store.db, request)
        attempt(lake, "w1", log="first\n", error=LOST)
        lake.store.db.write(lambda connection: connection.execute(schema.queue.update().values(not_before="")))
        workers.record_state(lake.store.db, "w2", workers.WORKER, "ready", {})
        second = run_claims.claim(lake.store.db, "w2")
        assert second is not None
        runs.start(lake.store.db, second.run, "main", "scheduler", {"tables": ["ods.orders"]})
        shown = shop("runs", request.id)
        body = shop("runs", request.id, "--json").json
    assert (shown.out + shown.err).count("RUN_LOST") == 1
    assert body["error"] is None and [item["error"] for item in body["attempts"]] == [LOST, None]


def test_a_run_that_failed_before_it_had_a_log(shop, tmp_path: Path) -> None:
    request = QueueRequest(RunRequest(), "scheduler", retries=0)
    error = {"code": "PLAN_MISSING", "what": "`a.b` reads `c.d`, which does not exist", "at": None, "fix": "select it"}
    with rn.open(tmp_path) as lake:
        run_queue.submit(lake.store.db, request)
        entry = run_claims.claim(lake.store.db, "w1")
        assert entry is not None
        run_claims.finish(lake.store.db, entry.claim, "failed", {"error": error})
    assert shop("logs", request.id).err == (
        f"LOG_MISSING: the log of run {request.id} is not on this machine; "
        "the run failed: `a.b` reads `c.d`, which does not exist\n"
        "  fix: select it; a run has a log as soon as it starts its steps, on the machine that runs it\n"
    )


def test_the_log_names_the_files_that_a_run_read(cli, tmp_path: Path) -> None:
    (tmp_path / "runnel.toml").write_text('[project]\nname = "shop"\n')
    for folder in ("flows", "data"):
        (tmp_path / folder).mkdir()
    declaration = 'rn.source("ods.x", rn.files("data/*.csv", schema="id long"))'
    (tmp_path / "flows/flow.py").write_text(f"import runnel as rn\n{declaration}\n")
    for number in (1, 2):
        (tmp_path / f"data/{number}.csv").write_text(f"id\n{number}\n")
    first = cli("run", "--json").json["run"]
    assert " files of ods.x: data/1.csv, data/2.csv\n" in cli("logs", first).out
    (tmp_path / "data/3.csv").write_text("id\nthree\n")
    assert cli("run").code == 1
    (failed,) = [item["run"] for item in cli("runs", "--json").json if item["state"] == "failed"]
    assert " files of ods.x: data/3.csv\n" in (tmp_path / f".runnel/logs/runs/{failed}.log").read_text()
