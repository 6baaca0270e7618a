"""The JSON of requests: what the catalog stores, what REST gets, and what earlier versions stored."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from runnel.model.date_range import DateRange
from runnel.model.run_request import RunRequest
from runnel.model.schedule_slot import ScheduleSlot
from runnel.model.worker_request import PlanRequest, QueryRequest, WorkerRequest, parse_worker_request

DAYS = DateRange(date(2026, 1, 1), date(2026, 1, 3))
RUN = RunRequest(("a.b", "c.*"), ("d.e",), "dev", True, True, DAYS, False, "why", ("x=1", "y=2"))
RUN_JSON = {
    "select": ["a.b", "c.*"],
    "exclude": ["d.e"],
    "full_refresh": True,
    "verify": True,
    "days": ["2026-01-01", "2026-01-03"],
    "reads_sources": False,
    "message": "why",
    "set": ["x=1", "y=2"],
}
DEFAULT_JSON = {
    "select": [],
    "exclude": [],
    "full_refresh": False,
    "verify": False,
    "days": None,
    "reads_sources": True,
    "message": None,
    "set": [],
}
QUERY_JSON = {"sql": "select 1", "at": "dev", "engine": "spark", "limit": 5, "arrow": True}

STORED: dict[str, tuple[WorkerRequest, dict[str, Any]]] = {
    "run": (RUN, RUN_JSON),
    "run of everything": (RunRequest(), DEFAULT_JSON),
    "plan": (PlanRequest(RunRequest(("a.b",), branch="dev")), {**DEFAULT_JSON, "select": ["a.b"]}),
    "query": (QueryRequest("select 1", "dev", "spark", 5, True), QUERY_JSON),
}


@pytest.mark.parametrize(("request_", "stored"), STORED.values(), ids=STORED)
def test_stored_requests(request_: WorkerRequest, stored: dict[str, Any]) -> None:
    assert request_.to_json() == stored
    assert parse_worker_request(request_.kind, stored, request_.branch) == request_


OLD: dict[str, tuple[str, dict[str, Any], WorkerRequest]] = {
    "run with some fields": ("run", {"select": ["a.b"]}, RunRequest(("a.b",), branch="dev")),
    "run with empty fields": ("run", {"select": None, "days": None, "set": None}, RunRequest(branch="dev")),
    "run of a schedule": (
        "run",
        {"select": ["a.b"], "reads_sources": False, "schedule": "often", "due": "#7"},
        RunRequest(("a.b",), branch="dev", reads_sources=False),
    ),
    "query without limits": ("query", {"sql": "select 1", "limit": None}, QueryRequest("select 1")),
    "kind of a later version": ("dream", {"select": ["a.b"]}, RunRequest(("a.b",), branch="dev")),
}


@pytest.mark.parametrize(("kind", "stored", "expected"), OLD.values(), ids=OLD)
def test_requests_of_other_versions(kind: str, stored: dict[str, Any], expected: WorkerRequest) -> None:
    assert parse_worker_request(kind, stored, "dev") == expected


def test_bodies_of_rest() -> None:
    run = RunRequest.create("a.b", ("c.d",), "dev", True, True, message="why", overrides=["x=1"])
    plan = {"select": ["a.b"], "exclude": ["c.d"], "branch": "dev", "full_refresh": True, "set": ["x=1"]}
    assert run.to_body() == {**plan, "verify": True, "message": "why"}
    assert PlanRequest(run).to_body() == plan
    days = {"from": "2026-01-01", "to": "2026-01-03", "chunk": "2d"}
    assert replace(run, days=DAYS).to_backfill_body(2) == {"select": ["a.b"], "branch": "dev", "set": ["x=1"], **days}
    assert replace(run, days=DAYS).to_backfill_body(None)["chunk"] is None
    assert QueryRequest("select 1", "dev").to_body() == {"sql": "select 1", "at": "dev", "engine": "auto"}
    assert QueryRequest("select 1", limit=3).to_body()["limit"] == 3


def test_the_request_of_a_chunk() -> None:
    chunk = RunRequest(("a.b",), overrides=("x=1",)).for_chunk(DAYS)
    assert chunk == RunRequest(("a.b",), days=DAYS, message="backfill 2026-01-01 to 2026-01-03", overrides=("x=1",))


SLOTS = {
    "time": (ScheduleSlot("nightly", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)), "2026-01-02T03:04:05Z"),
    "change": (ScheduleSlot("often", 7), "#7"),
}


@pytest.mark.parametrize(("slot", "text"), SLOTS.values(), ids=SLOTS)
def test_schedule_slots(slot: ScheduleSlot, text: str) -> None:
    stored = {"schedule": slot.schedule, "due": text}
    assert (slot.to_json(), ScheduleSlot.from_json(stored), slot.is_timed) == (stored, slot, not text.startswith("#"))
    assert slot.message == {"nightly": f"schedule nightly, {text}", "often": "schedule often"}[slot.schedule]
    assert ScheduleSlot.from_json({"select": []}) is None
