"""Count the runs that end while this process is there: how, how long they took, and where their time went."""

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
from runnel.lake.catalog.database import moment, stamp
from runnel.lake.flow_state import runs

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Row

    from runnel.lake.catalog.database import Database

_LONGEST = timedelta(days=2)  # runs that go on for longer are not looked for: so only the newest are looked at
_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 43200)
_MOST = 5000


class Endings(Collector):
    """Runs that ended since it was made. They are looked up when somebody asks."""

    def __init__(self, db: "Database") -> None:
        self._db = db
        self._since = db.now()
        self._known: set[str] = set()  # those that ended at that very moment
        self._guard = threading.Lock()
        own = CollectorRegistry()
        self._own = own
        self._ended = Counter("runnel_runs_ended", "Runs that ended, by how", ["state"], registry=own)
        self._seconds = Histogram("runnel_run_seconds", "How long runs took", ["state"], buckets=_SECONDS, registry=own)
        self._waited = Histogram(
            "runnel_queue_wait_seconds", "How long runs waited to be taken", buckets=_SECONDS, registry=own
        )
        self._spent = Counter("runnel_phase_seconds", "Where the time of runs went", ["phase"], registry=own)
        self._steps = Counter("runnel_steps", "Steps of runs that ended, by how", ["action", "state"], registry=own)

    def describe(self) -> list[Metric]:
        """Say nothing beforehand: it would have to look."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Look who has ended since the last time, and yield all figures."""
        with self._guard:
            for row in self._db.read(self._news):
                self._count(row)
        yield from self._own.collect()

    def _news(self, connection: "Connection") -> "list[Row[Any]]":
        columns = schema.runs.c
        after = stamp(moment(self._since) - _LONGEST)
        query = sa.select(schema.runs).where(columns.started_at >= after, columns.ended_at >= self._since)
        found = connection.execute(query.order_by(columns.ended_at).limit(_MOST)).all()
        return [row for row in found if row.id not in self._known and row.state != runs.RUNNING]

    def _count(self, row: "Row[Any]") -> None:
        if row.ended_at > self._since:
            self._since, self._known = row.ended_at, set()
        self._known.add(row.id)
        detail = json.loads(row.detail)
        self._ended.labels(row.state).inc()
        self._seconds.labels(row.state).observe(seconds_between(row.started_at, row.ended_at) or 0.0)
        times = times_json(detail)
        if times["timeline"]:
            self._waited.observe(times["timeline"].get("queue", 0.0))
        for phase, seconds in times["spent"].items():
            self._spent.labels(phase).inc(seconds)
        for step in detail.get("steps", ()):
            self._steps.labels(step["action"], step["state"]).inc()
