"""Rows of the queue as the version before wrote them, byte for byte: they are read, and written the same."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from runnel.lake.catalog import schema
from runnel.lake.control import backfills, run_queue
from runnel.lake.control.queue_entry import QueueRequest
from runnel.lake.store import Store
from runnel.model.date_range import DateRange
from runnel.model.run_request import RunRequest
from runnel.model.schedule_slot import ScheduleSlot
from runnel.model.worker_request import PlanRequest, QueryRequest

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DAY = DateRange(date(2026, 1, 1), date(2026, 1, 1))
REST = '"exclude": [], "full_refresh": false, "message": {}, "reads_sources": true, "select": ["dws.day"], "set": []'
DUE = datetime(2026, 1, 2, 3, tzinfo=UTC)

ROWS: dict[str, tuple[QueueRequest, str]] = {
    "run of a user": (
        QueueRequest(RunRequest(("dws.day",), branch="dev"), "ada"),
        '{"days": null, ' + REST.format("null") + ', "verify": false}',
    ),
    "run with a trace": (
        QueueRequest(RunRequest(("dws.day",), message="why"), "ada", trace=TRACE),
        '{"days": null, ' + REST.format('"why"') + f', "trace": "{TRACE}", "verify": false}}',
    ),
    "chunk of a backfill": (
        QueueRequest(RunRequest(("dws.day",)).for_chunk(DAY), "ada"),
        '{"days": ["2026-01-01", "2026-01-01"], ' + REST.format('"backfill 2026-01-01"') + ', "verify": false}',
    ),
    "time of a schedule": (
        QueueRequest(RunRequest(("dws.day",)), "scheduler", schedule_slot=ScheduleSlot("nightly", DUE)),
        '{"due": "2026-01-02T03:00:00Z", "reads_sources": true, "schedule": "nightly", "select": ["dws.day"]}',
    ),
    "change for a schedule": (
        QueueRequest(RunRequest(reads_sources=False), "scheduler", schedule_slot=ScheduleSlot("often", 7), trace=TRACE),
        f'{{"due": "#7", "reads_sources": false, "schedule": "often", "select": [], "trace": "{TRACE}"}}',
    ),
    "plan": (
        QueueRequest(PlanRequest(RunRequest(("dws.day",))), "ada"),
        '{"days": null, ' + REST.format("null") + ', "verify": false}',
    ),
    "query": (
        QueueRequest(QueryRequest("select 1", engine="spark", limit=10), "ada"),
        '{"arrow": false, "at": "main", "engine": "spark", "limit": 10, "sql": "select 1"}',
    ),
}


def set_request(store: Store, entry: str, text: str) -> None:
    columns = schema.queue.c
    store.db.write(lambda c: c.execute(schema.queue.update().where(columns.id == entry).values(wish=text)))


@pytest.mark.parametrize(("queued", "text"), ROWS.values(), ids=ROWS)
def test_rows_of_the_version_before(both: Store, queued: QueueRequest, text: str) -> None:
    run_queue.submit(both.db, queued)
    columns = schema.queue.c
    row = both.db.read(lambda c: c.execute(sa.select(schema.queue).where(columns.id == queued.id)).one())
    assert (row.wish, row.kind, row.branch) == (text, queued.request.kind, queued.request.branch)
    set_request(both, queued.id, text)
    entry = both.db.read(lambda c: run_queue.find(c, queued.id))
    assert (entry.request, entry.schedule_slot, entry.trace) == (queued.request, queued.schedule_slot, queued.trace)
    assert json.dumps(entry.request_json) == text


def test_a_field_that_no_schedule_sets_is_stored_all_the_same(both: Store) -> None:
    request = RunRequest(("dws.day",), overrides=("x=1",))
    queued = QueueRequest(request, "scheduler", schedule_slot=ScheduleSlot("often", 7))
    run_queue.submit(both.db, queued)
    assert both.db.read(lambda c: run_queue.find(c, queued.id)).request == request


MESSAGES: dict[str, tuple[dict[str, Any], str | None]] = {
    "of a user": ({"message": "why"}, "why"),
    "none": ({"message": None}, None),
    "of a schedule with times": (
        {"schedule": "nightly", "due": "2026-01-02T03:00:00Z"},
        "schedule nightly, 2026-01-02T03:00:00Z",
    ),
    "of a schedule with changes": ({"schedule": "often", "due": "#7"}, "schedule often"),
}


@pytest.mark.parametrize(("stored", "message"), MESSAGES.values(), ids=MESSAGES)
def test_the_message_of_a_run(both: Store, stored: dict[str, Any], message: str | None) -> None:
    queued = QueueRequest(RunRequest(), "ada")
    run_queue.submit(both.db, queued)
    set_request(both, queued.id, json.dumps(stored))
    entry = both.db.read(lambda c: run_queue.find(c, queued.id))
    assert entry.run_request == RunRequest(message=message)


def test_a_worker_knows_the_later_chunks_of_a_backfill(both: Store) -> None:
    """Tasks without slices by date are computed in the first chunk only."""
    days = DateRange(date(2026, 1, 1), date(2026, 1, 4)).chunks(2)
    backfills.create(both.db, "b1", [RunRequest(("dws.day",)).for_chunk(chunk) for chunk in days], "ada")
    chunks = both.db.read(lambda c: backfills.find(c, "b1")).chunks
    assert [chunk.run_request.days for chunk in chunks] == list(days)
    assert [chunk.run_request.days.is_start for chunk in chunks if chunk.run_request.days] == [True, False]


def test_a_backfill_of_the_version_before(both: Store) -> None:
    backfills.create(both.db, "b1", [RunRequest(("dws.day",)).for_chunk(DAY)], "ada")
    stored = {"select": ["dws.day"], "days": ["2026-01-01", "2026-01-01"], "set": ["x=1"]}
    both.db.write(lambda c: c.execute(schema.backfills.update().values(wish=json.dumps(stored))))
    backfill = both.db.read(lambda c: backfills.find(c, "b1"))
    assert backfill.request == RunRequest(("dws.day",), days=DAY, overrides=("x=1",))
    (chunk,) = backfill.json()["chunks"]
    assert (chunk["from"], chunk["to"], backfill.json()["select"]) == ("2026-01-01", "2026-01-01", ["dws.day"])
