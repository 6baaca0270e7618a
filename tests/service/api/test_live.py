"""What is happening: events of runs, logs, live state, workers, streams, figures."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from runnel.lake.control import (
    change_signal,
    queue_entry,
    run_claims,
    run_events,
    run_history,
    run_queue,
    schedules,
    workers,
)
from runnel.lake.flow_state import runs, streams
from runnel.lake.store import Store
from runnel.model.run_request import RunRequest
from runnel.model.worker_request import PlanRequest
from runnel.names import TableName
from runnel.service.api import sse
from tests.service.api.api_server import API, Api


@contextmanager
def listening(api: Api, path: str, **headers: str) -> Iterator[Iterator[tuple[str | None, str, str]]]:
    """Open a stream of events, and yield an iterator of (id, name, data); a heartbeat has no data."""
    headers = {"Authorization": f"Bearer {api.secret}", "Accept": "text/event-stream", **headers}
    with requests.get(api.url + API + path, headers=headers, stream=True, timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
        yield _events(answer)


def _events(answer: requests.Response) -> Iterator[tuple[str | None, str, str]]:
    found: dict[str, str] = {}
    for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
        if line.startswith(":"):
            yield None, "heartbeat", ""
        elif line:
            name, _, value = line.partition(": ")
            found[name] = value
        elif found:
            yield found.get("id"), found.get("event", "message"), found["data"]
            found = {}


def test_a_run_is_followed_to_its_end(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.2)
    db, run = api.lake.store.db, api.post("/runs", {}, 202)["run"]
    taken = run_claims.claim(db, "w1")
    assert taken is not None
    run_events.add(db, run, [{"kind": "start", "text": "one\ntwo"}])
    with listening(api, f"/runs/{run[:-1]}/events") as found:
        number, name, data = next(found)
        assert (number, name, json.loads(data)["text"]) == ("1", "message", "one\ntwo")
        assert next(found)[1] == "heartbeat"
        run_events.add(db, run, [{"kind": "end"}])
        run_claims.finish(db, taken.claim, "succeeded", {})
        rest = [(number, name) for number, name, _ in found if name != "heartbeat"]
        assert rest == [("2", "message"), (None, "end")]
    with listening(api, f"/runs/{run}/events", **{"Last-Event-ID": "1"}) as found:
        assert [(number, name) for number, name, _ in found] == rest
    assert [one["number"] for one in api.get(f"/runs/{run}/events")["items"]] == [1, 2]
    assert api.get(f"/runs/{run}/events", after=1, limit=1) == {
        "items": [{"number": 2, "at": api.get(f"/runs/{run}/events", after=1)["items"][0]["at"], "kind": "end"}],
        "next": None,
    }
    assert api.get(f"/runs/{run}/events", limit=1)["next"] == "1"
    assert api.get("/runs/no/events", 404)["code"] == "RUN_UNKNOWN"


def test_a_log(api: Api) -> None:
    db, run = api.lake.store.db, api.post("/runs", {}, 202)["run"]
    assert api.get(f"/runs/{run}/logs", 404)["code"] == "LOG_MISSING"
    taken = run_claims.claim(db, "w1")
    assert taken is not None
    runs.start(db, taken.run, "main", "ada", {})
    folder = api.lake.settings.home / "logs" / "runs"
    folder.mkdir(parents=True)
    (folder / f"{run}.log").write_text("grüße\n" * 50_000)
    found = api.ask("GET", f"/runs/{run}/logs")
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    assert found.content.decode() == "grüße\n" * 50_000
    assert api.get(f"/runs/{run[:20]}../logs", 404)["code"] == "RUN_UNKNOWN"


def test_live_state(api: Api) -> None:
    with listening(api, "/events") as first, listening(api, "/events") as second:
        _, name, data = next(first)
        state = json.loads(data)
        assert name == "state" and set(state["branches"]) == {"main", "dev"}
        assert state["queue"]["queued"] == 0 and state["workers"] == [] and state["streams"] == []
        assert json.loads(next(second)[2]) == state
        api.post("/branches", {"name": "fix"}, 201)
        assert "fix" in json.loads(next(first)[2])["branches"]
        assert "fix" in json.loads(next(second)[2])["branches"]
        run = api.post("/runs", {}, 202)["run"]
        assert json.loads(next(first)[2])["queue"]["queued"] == 1
        api.post(f"/runs/{run}/cancel")
        assert json.loads(next(first)[2])["queue"]["queued"] == 0
        workers.record_state(api.lake.store.db, "w1", workers.WORKER, "ready", {})
        assert json.loads(next(first)[2])["workers"] == [{"worker": "w1", "kind": "worker", "state": "ready"}]
        assert api.app.state.pulse._listeners == 2
    until = time.monotonic() + 10
    while api.app.state.pulse._task is not None and time.monotonic() < until:
        time.sleep(0.05)
    assert api.app.state.pulse._task is None, "nobody listens, so nobody asks the database"


def test_an_ending_service_lets_its_listeners_go(api: Api) -> None:
    with listening(api, "/events") as found:
        next(found)
        threading.Timer(0.2, api.app.state.ending.set).start()
        assert list(found) == []


@pytest.fixture
def busy(api: Api) -> Api:
    """Return an API whose lake has a worker, a stream, and a run that waits."""
    db = api.lake.store.db
    workers.record_state(db, "w1", workers.WORKER, "ready", {"runs": []})
    table = TableName.parse("dws.live")
    streams.record_state(db, "main", table, "running", None)
    streams.record_ingest(db, "main", table, {"rows": 5, "total_ms": 10.0})
    api.post("/runs", {}, 202)
    return api


def test_workers_streams_and_status(busy: Api) -> None:
    (worker,) = busy.get("/workers")["items"]
    assert (worker["worker"], worker["kind"], worker["state"]) == ("w1", "worker", "ready")
    status = busy.get("/status")
    assert (status["project"], status["queue"]) == ("shop", {"queued": 1, "running": 0})
    assert [one["worker"] for one in status["workers"]] == ["w1"]
    (stream,) = busy.get("/streams")["streams"]
    assert (stream["table"], stream["state"], stream["rows"]) == ("dws.live", "running", 5)
    assert busy.get("/streams", branch="dev") == {"streams": []}
    (batch,) = busy.get("/streams/dws.live/series")["items"]
    assert (batch["rows"], batch["commit"]) == (5, None)


FIGURES = [
    r'^runnel_queue_entries{state="queued"} 1.0$',
    r'^runnel_worker_beat_seconds{kind="worker",worker="w1"} \d',
    r'^runnel_workers{kind="worker",state="ready"} 1.0$',
    r"^runnel_queue_oldest_seconds \d",
    r'^runnel_alarms{level="alarm"} 0.0$',
    r'^runnel_stream_batch_seconds{branch="main",table="dws.live"} 0.01$',
    r'^runnel_stream_batch_age_seconds{branch="main",table="dws.live"} \d',
    r'^runnel_stream_running{branch="main",table="dws.live"} 1.0$',
    r'^runnel_stream_rows_per_second{branch="main",table="dws.live"} ',
    r'^runnel_http_requests_total{method="GET",path="/api/v1/tables/{name}",status="404"} 2.0$',
    r'^runnel_http_request_seconds_count{method="GET",path="/api/v1/tables/{name}"} 2.0$',
    r"^process_cpu_seconds_total ",
]


def test_figures(busy: Api) -> None:
    for name in ("a.b", "a.c"):
        busy.get(f"/tables/{name}", 404)
    found = requests.get(f"{busy.url}/metrics", headers={"Authorization": f"Bearer {busy.secret}"})
    assert found.headers["content-type"].startswith("text/plain")
    for line in FIGURES:
        assert re.search(line, found.text, re.MULTILINE), f"{line}\n{found.text}"
    assert requests.get(f"{busy.url}/metrics").status_code == 401


def test_what_is_asked_of_the_database(both: Store) -> None:
    """The questions that are the API's own hold on both databases."""
    entries = [queue_entry.QueueRequest(RunRequest(branch=branch), "ada") for branch in ("main", "dev")]
    for entry in entries:
        run_queue.submit(both.db, entry)
    plan = queue_entry.QueueRequest(PlanRequest(RunRequest(branch="other")), "ada")  # no run, so not in the list
    run_queue.submit(both.db, plan)
    runs.start(both.db, "20200101t000000-00000001", "main", "eve", {})
    runs.start(both.db, f"{entries[0].id}-2", "main", "eve", {})
    schedules.declare(both.db, [{"name": "x"}])

    def found(**wanted: Any) -> list[str]:
        return [
            one.id
            for one in both.db.read(
                lambda c: run_history.list_run_records(c, run_history.RunFilter(**wanted), 10, before)
            )
        ]

    before = None
    newest = sorted((entry.id for entry in entries), reverse=True)
    assert found() == [*newest, "20200101t000000-00000001"]
    assert found(branch="dev") == [entries[1].id] and found(cause="user") == newest
    assert found(state="queued") == newest and found(state="running") == []
    assert found(state="lost") == ["20200101t000000-00000001"]
    before = newest[-1]
    assert found() == ["20200101t000000-00000001"]
    run_queue.cancel(both.db, plan.id)
    first = both.db.read(change_signal.read_change_signal)
    assert first["queue"]["queued"] == 2 and list(first["branches"]) == ["main"]
    run_claims.claim(both.db, "w1")
    second = both.db.read(change_signal.read_change_signal)
    assert second["queue"]["version"] != first["queue"]["version"] and second["queue"]["running"] == 1
