"""Runs over HTTP: asked for, listed, stopped, repeated; and keys that let a request be sent twice."""

import threading
from dataclasses import fields
from datetime import date
from typing import Any

import pytest

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.control import run_claims, run_queue, schedules, workers
from runnel.lake.control.queue_entry import QueueRequest
from runnel.lake.flow_state import runs
from runnel.model.date_range import DateRange
from runnel.model.run_request import RunRequest
from runnel.model.worker_request import PlanRequest, QueryRequest, WorkerRequest
from tests.service.api.api_server import Api


def finish(api: Api, state: str = "succeeded", **outcome: Any) -> str:
    """Let a worker take the next run and end it; return its id."""
    db = api.lake.store.db
    taken = run_claims.claim(db, "w1")
    assert taken is not None
    runs.start(db, taken.run, taken.branch, taken.author, {"tables": ["ods.orders"]})
    step = {"table": "ods.orders", "action": "full", "state": state, "rows": 3, "seconds": 0.1, "reason": "new"}
    runs.finish(db, taken.run, state, None, {"steps": [step]})
    run_claims.finish(db, taken.claim, state, {"steps": [step], **outcome})
    return taken.id


def test_a_run(api: Api) -> None:
    body = {"select": ["+ods.orders"], "branch": "dev", "full_refresh": True, "message": "now", "set": ["day=1"]}
    answer = api.ask("POST", "/runs", json=body)
    assert answer.status_code == 202
    made = answer.json()
    assert answer.headers["location"] == f"/api/v1/runs/{made['run']}"
    assert (made["state"], made["branch"], made["author"], made["cause"]) == ("queued", "dev", "ada", "user")
    wish = api.get(f"/runs/{made['run']}")["wish"]
    assert {name: wish[name] for name in ("select", "full_refresh", "message", "set")} == {
        name: body[name] for name in ("select", "full_refresh", "message", "set")
    }
    assert finish(api) == made["run"]
    found = api.get(f"/runs/{made['run'][:-2]}")
    assert (found["state"], found["tables"], found["worker"]) == ("succeeded", ["ods.orders"], "w1")
    assert [(step["table"], step["rows"]) for step in found["steps"]] == [("ods.orders", 3)]
    assert [one["run"] for one in found["attempts"]] == [made["run"]]


def test_every_field_of_a_request_arrives(api: Api) -> None:
    run = RunRequest(("a.b",), ("c.d",), "dev", True, True, message="why", overrides=("x=1",))
    days = DateRange(date(2026, 1, 1), date(2026, 1, 3))
    backfill = RunRequest(("a.b",), branch="dev", days=days, overrides=("x=1",))
    defaults, out_of_body = RunRequest(), {"days", "reads_sources"}
    for field in fields(RunRequest):
        is_set = getattr(run, field.name) != getattr(defaults, field.name)
        assert is_set or field.name in out_of_body, f"set {field.name} above"
    api.post("/runs", run.to_body(), 202)
    api.post("/backfills", backfill.to_backfill_body(2), 202)
    entries = api.lake.store.db.read(lambda connection: run_queue.list_entries(connection))
    requests = {entry.request for entry in entries}
    assert requests == {run, *(backfill.for_chunk(part) for part in days.chunks(2))}


def test_a_run_that_cannot_wait_is_refused_where_nobody_is_there(api: Api) -> None:
    db, body = api.lake.store.db, {"now": True}
    told = {"project": api.lake.settings.name}
    workers.record_state(db, "s1", workers.SERVICE, "ready", told)
    workers.record_state(db, "w1", workers.WORKER, "stopping", told)
    workers.record_state(db, "w2", workers.WORKER, "ready", {"project": "another"})
    refused = api.ask("POST", "/runs", json=body)
    assert (refused.status_code, refused.json()["code"]) == (409, "NO_WORKER")
    assert api.get("/runs")["items"] == []
    workers.record_state(db, "w3", workers.WORKER, "starting", told)
    assert api.post("/runs", body, 202)["state"] == "queued"


def test_runs_of_both_kinds_newest_first(api: Api) -> None:
    db = api.lake.store.db
    runs.start(db, "20200101t000000-00000001", "main", "eve", {"tables": ["a.b"]})
    queued = [api.post("/runs", {"branch": branch}, 202)["run"] for branch in ("main", "dev", "main")]
    ended = finish(api, "failed", error={"code": "X", "what": "no", "at": None, "fix": None})
    listed = api.get("/runs")["items"]
    assert [one["run"] for one in listed] == [*sorted(queued, reverse=True), "20200101t000000-00000001"]
    assert listed[-1]["state"] == "lost" and "cause" not in listed[-1]
    pages, before = [], {}
    while True:
        page = api.get("/runs", limit=1, **before)
        pages += page["items"]
        if page["next"] is None:
            break
        before = {"before": page["next"]}
    assert pages == listed
    by = {"state": "queued", "branch": "dev", "cause": "user"}
    assert {name: len(api.get("/runs", **{name: value})["items"]) for name, value in by.items()} == {
        "state": 2,
        "branch": 1,
        "cause": 3,
    }
    assert [one["run"] for one in api.get("/runs", state="lost")["items"]] == ["20200101t000000-00000001"]
    assert [one["run"] for one in api.get("/runs", state="failed")["items"]] == [ended]
    assert api.get(f"/runs/{ended}")["error"]["code"] == "X"


def test_stop_and_repeat(api: Api) -> None:
    made = api.post("/runs", {"select": ["a.b"], "branch": "dev"}, 202)["run"]
    assert api.post(f"/runs/{made}/retry", expected=409)["code"] == "RUN_OPEN"
    assert api.post(f"/runs/{made}/cancel")["state"] == "cancelled"
    assert api.post(f"/runs/{made}/cancel")["state"] == "cancelled"
    again = api.post(f"/runs/{made}/retry", expected=202)
    assert again["run"] != made and again["branch"] == "dev"
    assert api.get(f"/runs/{again['run']}")["wish"] == api.get(f"/runs/{made}")["wish"]


ANSWERS: dict[str, tuple[WorkerRequest, str]] = {
    "a query": (QueryRequest("select 1"), "`runnel query`"),
    "a plan": (PlanRequest(RunRequest(("a.b",))), "`runnel plan`"),
}


@pytest.mark.parametrize(("request_", "command"), ANSWERS.values(), ids=ANSWERS)
def test_only_runs_are_repeated(api: Api, request_: WorkerRequest, command: str) -> None:
    entry = run_queue.submit(api.lake.store.db, QueueRequest(request_, "ada"))
    assert entry is not None
    run_queue.cancel(api.lake.store.db, entry)
    refused = api.post(f"/runs/{entry}/retry", expected=422)
    assert (refused["code"], refused["what"]) == ("NOT_A_RUN", f"{entry} is a {request_.kind}, not a run")
    assert command in refused["fix"]
    with pytest.raises(Mistake, match=command) as error:
        api.lake.retry(entry)
    assert (error.value.code, api.get("/runs")["items"]) == ("NOT_A_RUN", [])


def test_a_run_that_was_not_queued_is_not_stopped_here(api: Api) -> None:
    runs.start(api.lake.store.db, "20200101t000000-00000001", "main", "eve", {})
    for action in ("cancel", "retry"):
        assert api.post(f"/runs/20200101t/{action}", expected=422)["code"] == "RUN_NOT_QUEUED"


WRONG = {
    "an unknown branch": ({"branch": "dve"}, 404, "BRANCH_UNKNOWN"),
    "a setting of the lake": ({"set": ["lake.catalog=sqlite:///x"]}, 422, "REQUEST_INVALID"),
    "no value": ({"set": ["day"]}, 422, "REQUEST_INVALID"),
    "no list": ({"select": "a.b"}, 422, "REQUEST_INVALID"),
}


@pytest.mark.parametrize(("body", "status", "code"), WRONG.values(), ids=WRONG)
def test_wrong_wishes(seen: Api, body: dict[str, Any], status: int, code: str) -> None:
    assert seen.post("/runs", body, status)["code"] == code
    assert seen.get("/runs")["items"] == []


def test_an_unknown_run(seen: Api) -> None:
    for method, path in (("GET", "/runs/no"), ("POST", "/runs/no/cancel"), ("POST", "/runs/no/retry")):
        assert seen.ask(method, path).json()["code"] == "RUN_UNKNOWN"


def test_the_same_key_is_the_same_run(api: Api) -> None:
    first = api.ask("POST", "/runs", json={"select": ["a.b"]}, headers={"Idempotency-Key": "k1"})
    again = api.ask("POST", "/runs", json={"select": ["a.b"]}, headers={"Idempotency-Key": "k1"})
    assert first.json() == again.json() and again.headers["idempotency-replayed"] == "true"
    assert (again.status_code, again.headers["location"]) == (202, first.headers["location"])
    assert api.post("/runs", {"select": ["a.c"]}, 422, key="k1")["code"] == "KEY_REUSED"
    assert api.post("/branches", {"name": "x"}, 422, key="k1")["code"] == "KEY_REUSED"
    assert len(api.get("/runs")["items"]) == 1
    assert api.post("/runs", {"select": ["a.b"]}, 202, key="k2")["run"] != first.json()["run"]


def test_a_refusal_is_kept_too(api: Api) -> None:
    assert api.post("/branches", {"name": "fix", "from": "nowhere"}, 404, key="k")["code"] == "REF_UNKNOWN"
    api.lake.branch("nowhere")
    assert api.post("/branches", {"name": "fix", "from": "nowhere"}, 404, key="k")["code"] == "REF_UNKNOWN"
    assert api.post("/branches", {"name": "fix", "from": "nowhere"}, 201, key="k2")["branch"] == "fix"


def test_many_at_once_with_one_key(api: Api) -> None:
    found: list[int] = []

    def ask() -> None:
        answer = api.ask("POST", "/runs", json={}, headers={"Idempotency-Key": "k"})
        found.append(answer.status_code)

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) <= {202, 409} and 202 in found
    assert len(api.get("/runs")["items"]) == 1


def test_schedules(api: Api) -> None:
    db = api.lake.store.db
    schedules.declare(db, [{"name": "nightly", "cron": "0 2 * * *", "select": ["dws.*"]}])
    (found,) = api.get("/schedules")["items"]
    assert (found["schedule"], found["declared"]["cron"], found["paused_at"]) == ("nightly", "0 2 * * *", None)
    assert api.post("/schedules/nightly/pause")["paused_by"] == "ada"
    assert api.get("/schedules")["items"][0]["paused_at"] is not None
    assert api.post("/schedules/nightly/resume")["paused_at"] is None
    assert api.post("/schedules/nihgtly/pause", expected=404)["what"].endswith("close: `nightly`")


def test_a_run_whose_answer_was_lost_is_queued_once(api: Api) -> None:
    """The service died after it queued the run, and before it kept the answer."""
    db = api.lake.store.db
    first = api.post("/runs", {"select": ["a.b"]}, 202, key="k")
    db.write(lambda connection: connection.execute(schema.answers.delete()))
    assert api.post("/runs", {"select": ["a.b"]}, 202, key="k")["run"] == first["run"]
    db.write(lambda connection: connection.execute(schema.answers.delete()))
    assert api.post("/runs", {"select": ["a.c"]}, 202, key="k")["run"] != first["run"]


@pytest.mark.parametrize("path", ["/query", "/runs", "/branches"])
def test_a_body_without_its_content_type(api: Api, path: str) -> None:
    body = '{"sql": "select 1", "name": "fix"}'
    refused = api.ask("POST", path, data=body.encode()).json()
    assert (refused["status"], refused["code"]) == (422, "REQUEST_INVALID")
    assert refused["what"] == "the header `Content-Type: application/json` is missing"
    assert refused["fix"] == "send it with the body: curl -H 'Content-Type: application/json'"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert api.ask("POST", path, data=body, headers=form).json()["what"] == (
        "the header `Content-Type: application/json` is missing; the request has `application/x-www-form-urlencoded`"
    )
