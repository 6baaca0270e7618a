"""Prometheus gauges read from the catalog on each scrape: queue, workers, schedules, streams and alarms."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runnel.errors import RunnelError, Unreachable
from runnel.lake.catalog.database import parse_time, read_clock
from runnel.lake.control import alarms, change_signal, schedules, workers
from runnel.project.inspection.schedule_times import is_valid_schedule, list_due_times

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.client.lake import Lake
    from runnel.lake.control.schedules import ScheduleRecord
    from runnel.project.inspection.stream_health import StreamHealth

LOG = logging.getLogger("runnel.service")
_LEVELS = ("warning", "alarm")
_WORKER_STATES = ("starting", "ready", "stopping")


class CatalogGauges(Collector):
    """The gauges of the catalog's current state."""

    def __init__(self, lake: "Lake") -> None:
        self._lake = lake

    def collect(self) -> Iterator[Metric]:
        """Yield all gauges."""
        started_at, failed_gauge = (
            time.perf_counter(),
            _new_gauge("runnel_scrape_failed", "1 if figures are missing", ["part"]),
        )
        for section, read_metrics in _SECTIONS.items():
            metrics, has_failed = _try_read_metrics(read_metrics, self._lake)
            yield from metrics
            failed_gauge.add_metric([section], float(has_failed))
        yield failed_gauge
        duration_gauge = GaugeMetricFamily("runnel_scrape_seconds", "Seconds that it took to collect these figures")
        duration_gauge.add_metric([], time.perf_counter() - started_at)
        yield duration_gauge


def _try_read_metrics(read_metrics: "Callable[[Lake], Iterable[Metric]]", lake: "Lake") -> tuple[list[Metric], bool]:
    """Return the metrics of one section, and whether reading them failed: one section must not fail the others."""
    try:
        return list(read_metrics(lake)), False
    except Unreachable:
        raise  # the database is unreachable, so every section would fail
    except Exception as error:
        LOG.error("figures are missing: %s", error, exc_info=error)
        return [], True


def _with_connection(
    read_metrics: "Callable[[Connection, datetime], Iterable[Metric]]",
) -> "Callable[[Lake], list[Metric]]":
    """Wrap a reader of a catalog connection and its current time as a reader of a lake."""

    def read(connection: "Connection") -> list[Metric]:
        return list(read_metrics(connection, parse_time(read_clock(connection))))

    return lambda lake: lake.store.db.read(read)


def _catalog_metrics(connection: "Connection") -> Iterator[Metric]:
    now = parse_time(read_clock(connection))
    yield from _queue_metrics(connection, now)
    yield from _worker_metrics(connection, now)
    yield from _schedule_metrics(connection, now)
    yield from _alarm_metrics(connection, now)


def _alarm_metrics(connection: "Connection", _now: datetime) -> Iterator[Metric]:
    gauge = _new_gauge("runnel_alarms", "Open alarms", ["level"])
    levels = [alarm.level for alarm in alarms.read_alarms(connection)]
    for name in _LEVELS:
        gauge.add_metric([name], levels.count(name))
    yield gauge


def _queue_metrics(connection: "Connection", now: datetime) -> Iterator[Metric]:
    depth = _new_gauge("runnel_queue_entries", "Queued and running runs", ["state"])
    for state, number in change_signal.count_open_requests(connection).items():
        depth.add_metric([state], number)
    yield depth
    oldest = _new_gauge("runnel_queue_oldest_seconds", "Longest time that a queued run has waited")
    oldest.add_metric(
        [],
        max((_age_seconds(now, queued_at) for queued_at in change_signal.list_waiting_since(connection)), default=0.0),
    )
    yield oldest
    ended = _new_gauge("runnel_runs", "Runs in the catalog, by state", ["state"])
    for state, number in change_signal.count_runs_by_state(connection).items():
        ended.add_metric([state], number)
    yield ended


def _worker_metrics(connection: "Connection", now: datetime) -> Iterator[Metric]:
    label_names = ["worker", "kind"]
    ages = _new_gauge("runnel_worker_beat_seconds", "Seconds since its last heartbeat", label_names)
    memory = _new_gauge("runnel_worker_memory_bytes", "Resident memory, including its Spark", label_names)
    busy = _new_gauge("runnel_worker_runs", "Runs that it is computing", label_names)
    capacity = _new_gauge("runnel_worker_parallel", "Runs that it computes at a time, at most", label_names)
    problems = _new_gauge(
        "runnel_worker_problems", "Parts of it that are failing; `runnel status` names them", label_names
    )
    counts = _new_gauge("runnel_workers", "Running processes", ["kind", "state"])
    present_workers = workers.list_alive(connection)
    for worker in present_workers:
        labels = [worker.id, worker.kind]
        ages.add_metric(labels, _age_seconds(now, worker.renewed_at))
        problems.add_metric(labels, len(worker.detail.get("problems", ())))
        if worker.detail.get("memory_bytes"):
            memory.add_metric(labels, worker.detail["memory_bytes"])
        if worker.kind == workers.WORKER:
            busy.add_metric(labels, len(worker.detail.get("runs", ())))
            capacity.add_metric(labels, worker.detail.get("parallel", 0))
    for kind in (workers.WORKER, workers.SERVICE):
        for state in _WORKER_STATES:
            counts.add_metric(
                [kind, state], sum(1 for worker in present_workers if (worker.kind, worker.state) == (kind, state))
            )
    yield from (counts, ages, problems, memory, busy, capacity)


def _schedule_metrics(connection: "Connection", now: datetime) -> Iterator[Metric]:
    label_names = ["schedule"]
    lag = _new_gauge("runnel_schedule_lag_seconds", "Age of its oldest due time that is not queued", label_names)
    paused = _new_gauge("runnel_schedule_paused", "1 if it is paused", label_names)
    success_age = _new_gauge(
        "runnel_schedule_last_success_seconds", "Seconds since a run of it last succeeded", label_names
    )
    broken = _new_gauge(
        "runnel_schedule_broken", "1 if its times can't be read, so that it queues nothing", label_names
    )
    success_times = change_signal.read_last_success(connection)
    for schedule in schedules.list_schedules(connection):
        labels, declared = [schedule.name], schedule.declared
        is_broken = not is_valid_schedule(declared.get("cron"), declared.get("tz"), declared.get("every"))
        broken.add_metric(labels, float(is_broken))
        paused.add_metric(labels, float(schedule.paused_at is not None))
        if schedule.paused_at is None:
            lag.add_metric(labels, _lag_seconds(schedule, now))
        if succeeded_at := success_times.get(f"schedule/{schedule.name}"):
            success_age.add_metric(labels, _age_seconds(now, succeeded_at))
    yield from (lag, paused, success_age, broken)


def _lag_seconds(schedule: "ScheduleRecord", now: datetime) -> float:
    """Return how long a schedule has been due.

    0 for schedules on changes, and for unreadable ones, which `runnel_schedule_broken` reports.
    """
    declared: Mapping[str, Any] = schedule.declared
    after = parse_time(schedule.cursor.get("slot", schedule.seen_at))
    try:
        times_due = list_due_times(declared.get("cron"), declared.get("tz"), declared.get("every"), after, now, limit=1)
    except RunnelError:
        return 0.0
    return max((now - times_due[0]).total_seconds(), 0.0) if times_due else 0.0


_STREAM_GAUGES: "Mapping[str, tuple[str, Callable[[StreamHealth, datetime], float | None]]]" = {
    "behind_rows": ("Rows not read", lambda health, _: health.behind_rows),
    "behind_files": ("Files not read", lambda health, _: health.behind_files),
    "behind_bytes": ("Bytes of files not read", lambda health, _: health.behind_bytes),
    "behind_seconds": ("Age of the oldest change not read", lambda health, _: health.behind_seconds),
    "rows_per_second": ("Rows that arrived in the last minute", lambda health, _: health.rows_per_second),
    "running": ("1 if it is running", lambda health, _: float(health.state in ("running", "waiting"))),
    "failed": ("1 if it is failing", lambda health, _: float(health.state == "failed")),
    "batch_age_seconds": ("Seconds since its last batch", lambda health, now: _age_seconds(now, health.batch_at)),
    "batch_seconds": ("How long a batch takes", lambda health, _: _to_seconds(health.batch_ms)),
    "delay_seconds": ("From an event's arrival to its commit", lambda health, _: _to_seconds(health.delay_ms)),
    "state_rows": ("Rows of its state", lambda health, _: health.state_rows),
    "state_bytes": ("Memory of its state", lambda health, _: health.state_bytes),
    "late_rows": ("Rows that arrived too late in the last minute", lambda health, _: health.late_rows),
    "ahead_rows": ("Rows of the last minute that lie too far in the future", lambda health, _: health.ahead_rows),
    "set_aside_rows": ("Rows that were set aside in the last minute", lambda health, _: health.set_aside),
}


def _stream_metrics(lake: "Lake") -> Iterator[Metric]:
    from runnel.project.inspection.stream_health import list_stream_health

    stream_healths, now = list_stream_health(lake), parse_time(lake.store.db.now())
    for name, (documentation, read_value) in _STREAM_GAUGES.items():
        metric = _new_gauge(f"runnel_stream_{name}", documentation, ["table", "branch"])
        for stream_health in stream_healths:
            if (measured := read_value(stream_health, now)) is not None:
                metric.add_metric([str(stream_health.table), stream_health.branch], measured)
        yield metric


_SECTIONS: "Mapping[str, Callable[[Lake], Iterable[Metric]]]" = {
    "queue": _with_connection(_queue_metrics),
    "workers": _with_connection(_worker_metrics),
    "schedules": _with_connection(_schedule_metrics),
    "alarms": _with_connection(_alarm_metrics),
    "streams": _stream_metrics,
}


def _new_gauge(name: str, documentation: str, labels: list[str] | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=labels or [])


def _to_seconds(milliseconds: float | None) -> float | None:
    return milliseconds / 1000 if milliseconds is not None else None


def _age_seconds(now: datetime, at: str | None) -> float:
    return max((now - parse_time(at)).total_seconds(), 0.0) if at else 0.0
