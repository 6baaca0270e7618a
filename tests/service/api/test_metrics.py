"""What an operator sees of a lake, on both databases: figures by name, with their labels."""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

from prometheus_client.metrics_core import Metric

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.control import backfills, queue_entry, run_claims, run_queue, schedules, workers
from runnel.lake.flow_state import runs
from runnel.lake.store import Store
from runnel.model.date_range import DateRange
from runnel.model.run_request import RunRequest
from runnel.service.api.metrics.catalog_gauges import _catalog_metrics
from runnel.service.api.metrics.ended_runs import EndedRunMetrics
from runnel.service.memory_usage import measure_memory_bytes
from tests.service.api.api_server import Api

STEPS = [
    {"table": "ods.a", "action": "ingest", "state": "succeeded", "spent": {"read": 2.0}},
    {"table": "dws.b", "action": "full", "state": "succeeded", "spent": {"wait": 2.0, "compute": 3.0, "check": 1.0}},
]


def samples(found: Iterable[Metric]) -> dict[tuple[Any, ...], float]:
    """Return figures by name and the values of their labels."""
    told = [one for metric in found for one in metric.samples]
    return {(one.name, *one.labels.values()): one.value for one in told if not one.name.endswith("_created")}


def put_back(store: Store, entry: str, seconds: float) -> None:
    """Let an entry have been queued some time ago."""
    columns, then = schema.queue.c, format_time(parse_time(store.db.now()) - timedelta(seconds=seconds))
    store.db.write(lambda c: c.execute(schema.queue.update().where(columns.id == entry).values(queued_at=then)))


def test_the_catalog_at_a_moment(both: Store) -> None:
    waits = queue_entry.QueueRequest(RunRequest(), "ada")
    run_queue.submit(both.db, waits)
    put_back(both, waits.id, 600)
    day = date(2026, 1, 1)
    backfills.create(both.db, "20200101t000000-00000001", [RunRequest(days=DateRange(day, day))], "ada")
    (chunk,) = both.db.read(lambda c: backfills.find(c, "20200101t000000-00000001")).chunks
    put_back(both, chunk.id, 9_000)
    both.db.write(lambda c: c.execute(schema.backfills.update().values(state=queue_entry.PAUSED)))
    workers.record_state(both.db, "w1", workers.WORKER, "ready", {"runs": ["x"], "parallel": 4, "memory_bytes": 5_000})
    schedules.declare(both.db, [{"name": "often", "every": "1 hour"}, {"name": "rare", "on_change": ["ods.a"]}])
    late = format_time(parse_time(both.db.now()) - timedelta(hours=3))
    both.db.write(lambda c: c.execute(schema.schedules.update().values(seen_at=late)))
    found = samples(both.db.read(lambda c: list(_catalog_metrics(c))))
    assert found["runnel_queue_entries", "queued"] == 2
    assert 600 <= found["runnel_queue_oldest_seconds",] < 9_000, "what a person paused waits for that person"
    assert found["runnel_workers", "worker", "ready"] == 1 and found["runnel_workers", "service", "ready"] == 0
    assert found["runnel_worker_memory_bytes", "w1", "worker"] == 5_000
    assert (found["runnel_worker_runs", "w1", "worker"], found["runnel_worker_parallel", "w1", "worker"]) == (1, 4)
    assert found["runnel_schedule_lag_seconds", "often"] >= 7_200 and found["runnel_schedule_lag_seconds", "rare"] == 0
    assert found["runnel_schedule_paused", "often"] == 0 and found["runnel_alarms", "warning"] == 0
    assert ("runnel_schedule_last_success_seconds", "often") not in found


def test_a_schedule_that_succeeds(both: Store) -> None:
    schedules.declare(both.db, [{"name": "often", "every": "1 hour"}])
    run_queue.submit(both.db, queue_entry.QueueRequest(RunRequest(), "scheduler", cause="schedule/often"))
    held = run_claims.claim(both.db, "w1")
    assert held is not None and run_claims.finish(both.db, held.claim, "succeeded", {}) == "succeeded"
    found = samples(both.db.read(lambda c: list(_catalog_metrics(c))))
    assert found["runnel_schedule_last_success_seconds", "often"] >= 0


def test_runs_that_end_are_counted_once(both: Store) -> None:
    runs.start(both.db, "before", "main", "ada", {})
    runs.finish(both.db, "before", "succeeded", None, {})
    endings = EndedRunMetrics(both.db)
    for name, state in (("one", "succeeded"), ("two", "succeeded"), ("three", "failed")):
        runs.start(both.db, name, "main", "ada", {})
        timeline = {"queue": 0.7, "plan": 0.5, "publish": 0.25, "steps": 6.0}
        runs.finish(both.db, name, state, None, {"steps": STEPS, "timeline": timeline})
        found = samples(endings.collect())
    assert samples(endings.collect()) == found
    assert (found["runnel_runs_ended_total", "succeeded"], found["runnel_runs_ended_total", "failed"]) == (2, 1)
    assert found["runnel_run_seconds_count", "succeeded"] == 2
    assert (
        found["runnel_queue_wait_seconds_bucket", "1.0"] == 3 and found["runnel_queue_wait_seconds_bucket", "0.5"] == 0
    )
    assert (
        found["runnel_phase_seconds_total", "compute"] == 9 and found["runnel_phase_seconds_total", "publish"] == 0.75
    )
    assert found["runnel_steps_total", "ingest", "succeeded"] == 3


def test_memory_is_told() -> None:
    found = measure_memory_bytes()
    assert found is None or found > 1_000_000
    assert measure_memory_bytes(2**22 + 1) is None, "a process that is not there"


def test_made_up_methods_and_paths_share_a_time_series(seen: Api) -> None:
    """A client without a token can send as many as it likes, and each time series stays in memory."""
    before = {name for name in samples(seen.app.state.registry.collect()) if name[0].startswith("runnel_http")}
    for number in range(3):
        assert seen.session.request(f"MADE{number}", f"{seen.url}/api/v1/tables/x{number}").status_code == 401
        assert seen.ask(f"MADE{number}", f"/tables/x{number}").status_code == 405
        assert seen.ask("GET", f"/nothing/{number}").status_code == 404
    added = {name for name in samples(seen.app.state.registry.collect()) if name[0].startswith("runnel_http")} - before
    assert {labels[1] for labels in added} <= {"other", "GET"}
    totals = {labels for labels in added if labels[0] == "runnel_http_requests_total"}
    assert ("runnel_http_requests_total", "other", "none", "401") in totals
    assert len(totals) <= 3
