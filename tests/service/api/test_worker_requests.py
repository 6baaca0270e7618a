"""What needs a worker: plans, and queries of Spark; and backfills, which it computes chunk by chunk."""

from collections.abc import Iterator

import pytest

from runnel.service.worker.worker import Worker
from tests.service.api.api_server import Api, working


@pytest.fixture
def worker(api: Api) -> Iterator[Worker]:
    with working(api) as worker:
        yield worker


def test_a_plan(api: Api, worker: Worker) -> None:
    steps = api.post("/plan", {"select": ["ods.more"]})["steps"]
    assert [(step["table"], step["action"]) for step in steps] == [("ods.more", "ingest")]
    wrong = api.post("/plan", {"select": ["ods.mroe"]}, 422)
    assert "close: `ods.more`" in wrong["what"]
    assert api.post("/plan", {"branch": "nowhere"}, 404)["code"] == "BRANCH_UNKNOWN"


def test_without_a_worker(api: Api) -> None:
    assert api.post("/plan", {}, 503)["code"] == "WORKER_ABSENT"


def test_backfills(api: Api) -> None:
    body = {"select": ["dws.*"], "from": "2026-01-01", "to": "2026-01-14", "chunk": "7d"}
    made = api.ask("POST", "/backfills", json=body)
    assert made.status_code == 202
    name = made.json()["backfill"]
    assert made.headers["location"] == f"/api/v1/backfills/{name}"
    days = [(chunk["from"], chunk["to"], chunk["state"]) for chunk in made.json()["chunks"]]
    assert days == [("2026-01-01", "2026-01-07", "queued"), ("2026-01-08", "2026-01-14", "queued")]
    assert api.post(f"/backfills/{name}/pause")["state"] == "paused"
    assert api.post(f"/backfills/{name}/resume")["state"] == "running"
    assert api.post(f"/backfills/{name}/cancel")["state"] == "cancelled"
    assert [one["backfill"] for one in api.get("/backfills")["items"]] == [name]
    assert api.get("/backfills/nowhere", 404)["code"] == "BACKFILL_UNKNOWN"
    backwards = {**body, "from": "2026-01-15"}
    assert api.post("/backfills", backwards, 422)["code"] != "INTERNAL"
    endless = {**body, "from": "0001-01-01", "to": "9999-12-31", "chunk": "1d"}
    assert api.post("/backfills", endless, 422)["code"] == "BACKFILL_TOO_MANY_CHUNKS"
    assert len(api.get("/backfills")["items"]) == 1, "nothing is queued"
