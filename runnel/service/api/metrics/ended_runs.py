"""Count the runs that end while this process is running: their states, durations and phase times."""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from runnel.client.json_views.run import seconds_between, times_json
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.flow_state import runs

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Row

    from runnel.lake.catalog.database import Database

_MAX_RUN_TIME = timedelta(days=2)  # longer runs are not counted, so that only the newest rows are read
_BUCKETS_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 43200)
_MAX_ROWS = 5000


class EndedRunMetrics(Collector):
    """Metrics of the runs that ended since this object was created. The catalog is read on each scrape."""

    def __init__(self, db: "Database") -> None:
        self._db = db
        self._counted_until = db.now()
        self._counted_ids: set[str] = set()  # runs that ended exactly at `_counted_until`
        self._lock = threading.Lock()
        registry = CollectorRegistry()
        self._registry = registry
        self._ended_runs = Counter("runnel_runs_ended", "Ended runs, by state", ["state"], registry=registry)
        self._run_seconds = Histogram(
            "runnel_run_seconds", "How long runs took", ["state"], buckets=_BUCKETS_SECONDS, registry=registry
        )
        self._wait_seconds = Histogram(
            "runnel_queue_wait_seconds",
            "How long runs waited in the queue",
            buckets=_BUCKETS_SECONDS,
            registry=registry,
        )
        self._phase_seconds = Counter(
            "runnel_phase_seconds", "Where the time of runs went", ["phase"], registry=registry
        )
        self._steps = Counter(
            "runnel_steps", "Steps of ended runs, by action and state", ["action", "state"], registry=registry
        )

    def describe(self) -> list[Metric]:
        """Describe nothing in advance: that would read the catalog."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Count the runs that ended since the last scrape, and yield all metrics."""
        with self._lock:
            for row in self._db.read(self._read_ended_runs):
                self._count_run(row)
        yield from self._registry.collect()

    def _read_ended_runs(self, connection: "Connection") -> "list[Row[Any]]":
        columns = schema.runs.c
        after = format_time(parse_time(self._counted_until) - _MAX_RUN_TIME)
        query = sa.select(schema.runs).where(columns.started_at >= after, columns.ended_at >= self._counted_until)
        rows = connection.execute(query.order_by(columns.ended_at).limit(_MAX_ROWS)).all()
        return [row for row in rows if row.id not in self._counted_ids and row.state != runs.RUNNING]

    def _count_run(self, row: "Row[Any]") -> None:
        if row.ended_at > self._counted_until:
            self._counted_until, self._counted_ids = row.ended_at, set()
        self._counted_ids.add(row.id)
        detail = json.loads(row.detail)
        self._ended_runs.labels(row.state).inc()
        self._run_seconds.labels(row.state).observe(seconds_between(row.started_at, row.ended_at) or 0.0)
        times = times_json(detail)
        if times["timeline"]:
            self._wait_seconds.observe(times["timeline"].get("queue", 0.0))
        for phase, seconds in times["spent"].items():
            self._phase_seconds.labels(phase).inc(seconds)
        for step in detail.get("steps", ()):
            self._steps.labels(step["action"], step["state"]).inc()
