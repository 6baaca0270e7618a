"""What the catalog says when Prometheus asks: the queue, workers, schedules, streams, and what is wrong."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runnel.errors import RunnelError, Unreachable
from runnel.lake.catalog.database import clock, moment
from runnel.lake.control import alarms, change_signal, schedules, workers
from runnel.project.inspection.schedule_times import due, is_readable

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.client.lake import Lake
    from runnel.lake.control.schedules import Standing
    from runnel.project.inspection.stream_health import Health

LOG = logging.getLogger("runnel.service")
_LEVELS = ("warning", "alarm")
_PRESENT = ("starting", "ready", "stopping")


class Figures(Collector):
    """What the catalog says at the moment."""

    def __init__(self, lake: "Lake") -> None:
        self._lake = lake

    def collect(self) -> Iterator[Metric]:
        """Yield all figures."""
        begun, failed = time.perf_counter(), _gauge("runnel_scrape_failed", "1 where figures are missing", ["part"])
        for part, figures in _PARTS.items():
            metrics, error = _attempt(figures, self._lake)
            yield from metrics
            failed.add_metric([part], float(error))
        yield failed
        took = GaugeMetricFamily("runnel_scrape_seconds", "Seconds that these figures took")
        took.add_metric([], time.perf_counter() - begun)
        yield took


def _attempt(figures: "Callable[[Lake], Iterable[Metric]]", lake: "Lake") -> tuple[list[Metric], bool]:
    """Return figures, and whether they could not be had: those of one part must not take the others along."""
    try:
        return list(figures(lake)), False
    except Unreachable:
        raise  # the database is away: all of them are
    except Exception as error:
        LOG.error("figures are missing: %s", error, exc_info=error)
        return [], True


def _from_catalog(figures: "Callable[[Connection, datetime], Iterable[Metric]]") -> "Callable[[Lake], list[Metric]]":
    """Return how to have figures from a connection and its time, of a lake."""

    def read(connection: "Connection") -> list[Metric]:
        return list(figures(connection, moment(clock(connection))))

    return lambda lake: lake.store.db.read(read)


def _catalog(connection: "Connection") -> Iterator[Metric]:
    now = moment(clock(connection))
    yield from _queue(connection, now)
    yield from _workers(connection, now)
    yield from _schedules(connection, now)
    yield from _alarms(connection, now)


def _alarms(connection: "Connection", now: datetime) -> Iterator[Metric]:
    level = _gauge("runnel_alarms", "What is wrong now", ["level"])
    wrong = [one.level for one in alarms.alarms(connection)]
    for name in _LEVELS:
        level.add_metric([name], wrong.count(name))
    yield level


def _queue(connection: "Connection", now: datetime) -> Iterator[Metric]:
    depth = _gauge("runnel_queue_entries", "Runs that wait or go on", ["state"])
    for state, number in change_signal.depths(connection).items():
        depth.add_metric([state], number)
    yield depth
    oldest = _gauge("runnel_queue_oldest_seconds", "How long the run has waited that waits longest")
    oldest.add_metric([], max((_age(now, at) for at in change_signal.waiting_since(connection)), default=0.0))
    yield oldest
    ended = _gauge("runnel_runs", "Runs that the catalog remembers, by how they ended", ["state"])
    for state, number in change_signal.ended(connection).items():
        ended.add_metric([state], number)
    yield ended


def _workers(connection: "Connection", now: datetime) -> Iterator[Metric]:
    words = ["worker", "kind"]
    ages = _gauge("runnel_worker_beat_seconds", "Seconds since it was heard of", words)
    memory = _gauge("runnel_worker_memory_bytes", "Resident memory, that of its Spark included", words)
    busy = _gauge("runnel_worker_runs", "Runs that it is at", words)
    room = _gauge("runnel_worker_parallel", "Runs that it takes at a time", words)
    wrong = _gauge("runnel_worker_problems", "Parts of it that fail now; `runnel status` names them", words)
    there = _gauge("runnel_workers", "Processes that are there", ["kind", "state"])
    found = workers.present(connection)
    for one in found:
        labels = [one.id, one.kind]
        ages.add_metric(labels, _age(now, one.renewed_at))
        wrong.add_metric(labels, len(one.detail.get("problems", ())))
        if one.detail.get("memory_bytes"):
            memory.add_metric(labels, one.detail["memory_bytes"])
        if one.kind == workers.WORKER:
            busy.add_metric(labels, len(one.detail.get("runs", ())))
            room.add_metric(labels, one.detail.get("parallel", 0))
    for kind in (workers.WORKER, workers.SERVICE):
        for state in _PRESENT:
            there.add_metric([kind, state], sum(1 for one in found if (one.kind, one.state) == (kind, state)))
    yield from (there, ages, wrong, memory, busy, room)


def _schedules(connection: "Connection", now: datetime) -> Iterator[Metric]:
    words = ["schedule"]
    lag = _gauge("runnel_schedule_lag_seconds", "How long its oldest time is due that is not queued", words)
    paused = _gauge("runnel_schedule_paused", "1 where somebody paused it", words)
    well = _gauge("runnel_schedule_last_success_seconds", "Seconds since a run of it last succeeded", words)
    broken = _gauge("runnel_schedule_broken", "1 where its times can't be read, so that it queues nothing", words)
    last = change_signal.last_success(connection)
    for one in schedules.standing(connection):
        labels, declared = [one.name], one.declared
        is_broken = not is_readable(declared.get("cron"), declared.get("tz"), declared.get("every"))
        broken.add_metric(labels, float(is_broken))
        paused.add_metric(labels, float(one.paused_at is not None))
        if one.paused_at is None:
            lag.add_metric(labels, _lag(one, now))
        if at := last.get(f"schedule/{one.name}"):
            well.add_metric(labels, _age(now, at))
    yield from (lag, paused, well, broken)


def _lag(one: "Standing", now: datetime) -> float:
    """Return how long a schedule is due; one on changes never is, and `runnel_schedule_broken` has unreadable ones."""
    declared: Mapping[str, Any] = one.declared
    after = moment(one.cursor.get("slot", one.seen_at))
    try:
        found = due(declared.get("cron"), declared.get("tz"), declared.get("every"), after, now, 1)
    except RunnelError:
        return 0.0
    return max((now - found[0]).total_seconds(), 0.0) if found else 0.0


_STREAM: "Mapping[str, tuple[str, Callable[[Health, datetime], float | None]]]" = {
    "behind_seconds": ("Age of the oldest change not read", lambda one, now: one.behind_seconds),
    "rows_per_second": ("Rows that came in the last minute", lambda one, now: one.rows_per_second),
    "running": ("1 where it goes on", lambda one, now: float(one.state in ("running", "waiting"))),
    "failed": ("1 where it fails", lambda one, now: float(one.state == "failed")),
    "batch_age_seconds": ("Seconds since its last batch", lambda one, now: _age(now, one.batch_at)),
    "batch_seconds": ("How long a batch takes", lambda one, now: _seconds(one.batch_ms)),
    "delay_seconds": ("From an event's arrival to its commit", lambda one, now: _seconds(one.delay_ms)),
    "state_rows": ("Rows that it remembers", lambda one, now: one.state_rows),
    "state_bytes": ("Memory for what it remembers", lambda one, now: one.state_bytes),
    "late_rows": ("Rows that came too late in the last minute", lambda one, now: one.late_rows),
    "set_aside_rows": ("Rows that were set aside in the last minute", lambda one, now: one.set_aside),
}


def _streams(lake: "Lake") -> Iterator[Metric]:
    from runnel.project.inspection.stream_health import healths

    found, now = healths(lake), moment(lake.store.db.now())
    for name, (told, value) in _STREAM.items():
        metric = _gauge(f"runnel_stream_{name}", told, ["table", "branch"])
        for one in found:
            if (known := value(one, now)) is not None:
                metric.add_metric([str(one.table), one.branch], known)
        yield metric


_PARTS: "Mapping[str, Callable[[Lake], Iterable[Metric]]]" = {
    "queue": _from_catalog(_queue),
    "workers": _from_catalog(_workers),
    "schedules": _from_catalog(_schedules),
    "alarms": _from_catalog(_alarms),
    "streams": _streams,
}


def _gauge(name: str, told: str, labels: list[str] | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, told, labels=labels or [])


def _seconds(milliseconds: float | None) -> float | None:
    return milliseconds / 1000 if milliseconds is not None else None


def _age(now: datetime, at: str | None) -> float:
    return max((now - moment(at)).total_seconds(), 0.0) if at else 0.0
