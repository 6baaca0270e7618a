"""Checks and alarms over REST; defects are logged once."""

import logging
from datetime import UTC, datetime, timedelta

import pytest
import requests

from runnel.lake.control import alarms, queue_entry, run_claims, run_queue
from runnel.lake.control.alarms import Alarm
from runnel.lake.history.commits import CommitChange
from runnel.lake.publish import CommitDraft, publish
from runnel.model.run_request import RunRequest
from runnel.names import TableName
from tests.service.api.api_server import Api

CHECKS = [
    {"check": "not_null(id)", "on_fail": "stop", "failed": 0, "kind": "not_null"},
    {"check": "amount >= 0", "on_fail": "quarantine", "failed": 2, "kind": "condition"},
]


def made_with_checks(api: Api) -> str:
    """Publish a version as a task's run does, with how its checks went."""
    store, table = api.lake.store, TableName.parse("dws.day")
    location = store.state("main")[TableName.parse("ods.orders")].location
    detail = {"key": "k", "checks": CHECKS, "run": "20260102t080000-00000001"}
    change = CommitChange(table, None, location, location, detail)
    return publish(store.db, CommitDraft("main", "a run", "ada", (change,))).id


def test_checks_of_a_table(api: Api) -> None:
    commit = made_with_checks(api)
    found = api.get("/tables/dws.day/checks")
    assert [(one["check"], one["state"], one["failed"]) for one in found["checks"]] == [
        ("not_null(id)", "passed", 0),
        ("amount >= 0", "failed", 2),
    ]
    assert (found["commit"], found["run"], found["last"]) == (commit, "20260102t080000-00000001", None)
    assert api.get("/checks") == {"items": [found], "next": None}
    assert api.get("/tables/ods.orders/checks")["checks"] == []
    assert api.get("/tables/dws.dya/checks", 404)["what"].endswith("close: `dws.day`")
    assert api.get("/checks", at="v1")["items"] == []


def test_a_run_that_its_checks_stopped(api: Api) -> None:
    """The version stays as it was; the newest run says why."""
    made_with_checks(api)
    db = api.lake.store.db
    run_queue.submit(db, queue_entry.QueueRequest(RunRequest(), "ada"))
    claimed = run_claims.claim(db, "w")
    assert claimed is not None
    error = {"code": "CHECK_FAILED", "what": "1 check failed", "at": None, "fix": None}
    step = {"table": "dws.day", "action": "full", "state": "failed", "error": error}
    run_claims.finish(db, claimed.claim, queue_entry.FAILED, {"steps": [step]})
    last = api.get("/tables/dws.day/checks")["last"]
    assert (last["run"], last["state"], last["error"]["code"]) == (claimed.id, "failed", "CHECK_FAILED")


def test_alarms(api: Api) -> None:
    db, now = api.lake.store.db, datetime.now(UTC)
    assert api.get("/alarms")["items"] == []
    wrong = [Alarm(f"run/{name}", "failed", f"{name} failed", "2026-01-02", fix="look") for name in "abc"]
    alarms.update_alarms(db, wrong, now)
    alarms.update_alarms(db, wrong[:1], now + timedelta(minutes=1))
    assert [(one["alarm"], one["state"]) for one in api.get("/alarms")["items"]] == [("run/a", "open")]
    assert [one["alarm"] for one in api.get("/alarms", state="over")["items"]] == ["run/c", "run/b"]
    first = api.get("/alarms", state="all", limit=2)
    assert first["next"] == "2"
    rest = api.get("/alarms", state="all", limit=2, offset=first["next"])
    assert [one["alarm"] for one in first["items"] + rest["items"]] == ["run/a", "run/c", "run/b"]


def test_a_defect_is_logged_once(api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("runnel.service.api.routes.lake.branches.branch_json", None)
    with caplog.at_level(logging.ERROR):
        found = requests.get(f"{api.url}/api/v1/branches", headers={"Authorization": f"Bearer {api.secret}"})
    assert (found.status_code, found.json()["code"]) == (500, "INTERNAL")
    assert [record.name for record in caplog.records] == ["runnel.api"]
