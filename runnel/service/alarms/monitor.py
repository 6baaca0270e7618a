"""Check the catalog for problems, and raise or end alarms. Of several services, only the lease holder does so."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from runnel.lake.catalog.database import format_time, parse_time, read_clock
from runnel.lake.control import alarms, backfills, declarations, queue_entry, run_queue, schedules, workers
from runnel.lake.control.leader_lease import LeaderLease
from runnel.lake.flow_state import sink_positions, streams
from runnel.lake.flow_state.last_published import read_last_published
from runnel.service.alarms.debounce import Debounce
from runnel.service.alarms.failure_alarms import find_failure_alarms
from runnel.service.alarms.health_alarms import (
    BACKLOG_KEY,
    find_backlog_alarm,
    find_disk_alarm,
    find_schedule_alarms,
    find_sink_alarms,
    find_stream_alarms,
    find_undeclared_alarm,
    find_worker_alarm,
)
from runnel.service.alarms.lateness_alarms import build_timed_schedules, find_lateness_alarms, list_tables_with_deadline
from runnel.service.alarms.lateness_fixes import ScheduledRuns
from runnel.service.alarms.run_outcomes import RunOutcomes

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database
    from runnel.lake.control.alarms import Alarm
    from runnel.lake.control.declarations import ProjectDeclarations
    from runnel.lake.control.queue_entry import QueueEntry
    from runnel.lake.control.schedules import ScheduleRecord
    from runnel.project.inspection.backlog import ReaderBacklog
    from runnel.service.server.scheduler import ScheduleProblem

LOG = logging.getLogger("runnel.service")
_TRANSIENT_KINDS = ("schedule", "stream", "sink", "worker", "disk")  # kinds of alarms that may end by themselves

_RAISED_AFTER = {BACKLOG_KEY: timedelta(seconds=30)}  # so that people know of it within a minute
_MEASURE_INTERVAL = timedelta(seconds=10)  # between two measurements of backlogs, which read files of the lake


@dataclass(frozen=True)
class _AlarmFacts:
    declared: "ProjectDeclarations"
    schedules: "list[ScheduleRecord]"
    open_entries: "list[QueueEntry]"
    transient_alarms: "list[Alarm]"  # that may end by themselves
    worker_count: int
    raised_alarms: "list[Alarm]"


class AlarmMonitor:
    """Raises and ends alarms. `clock_now` is by default the database's clock.

    `schedule_problems` returns the errors of the scheduler; `are_declared` returns whether a worker has declared the
    schedules since the service started; `list_backlogs` what streams and sources have still to read.
    """

    def __init__(
        self,
        db: "Database",
        clock_now: Callable[[], datetime] | None = None,
        schedule_problems: "Callable[[], Mapping[str, ScheduleProblem]]" = dict,
        are_declared: Callable[[], bool] = lambda: True,
        list_backlogs: "Callable[[], Sequence[ReaderBacklog]]" = list,
    ) -> None:
        self._db = db
        self._are_declared = are_declared
        self._schedule_problems = schedule_problems
        self._list_backlogs = list_backlogs
        self._backlog_alarms: list[Alarm] = []
        self._measured_at: datetime | None = None
        self._clock_now = clock_now or (lambda: parse_time(db.read(read_clock)))
        self._lease = LeaderLease(db, "alarms")
        self._outcomes: RunOutcomes | None = None
        self._debounce: Debounce | None = None

    def update_alarms(self) -> None:
        """Raise new alarms and end resolved ones; do nothing if another service holds the lease."""
        if not self._lease.acquire():
            self._outcomes = self._debounce = None  # what was read may be outdated when this service gets the lease
            return
        now = self._clock_now()
        facts = self._db.read(lambda connection: _read_facts(connection, now))
        outcomes = self._outcomes = self._outcomes or RunOutcomes()
        outcomes.read_new(self._db)  # after the queue, so that a run that ends meanwhile is in one of them
        if self._debounce is None:
            transient_alarms = [alarm for alarm in facts.raised_alarms if alarm.kind in _TRANSIENT_KINDS]
            self._debounce = Debounce(transient_alarms, now, _RAISED_AFTER)
        alarms.update_alarms(self._db, self._find_alarms(facts, outcomes, self._debounce, now), now)

    def _find_alarms(
        self, facts: _AlarmFacts, outcomes: RunOutcomes, debounce: Debounce, now: datetime
    ) -> "list[Alarm]":
        failed_runs = outcomes.unresolved_failures()
        tables = {item.table for item in list_tables_with_deadline(facts.declared)} | {
            name for item in failed_runs for name, _ in item.failed_tables
        }
        published_times = self._db.read(lambda connection: read_last_published(connection, "main", tables))
        published_times |= {
            table: max(published_at, published_times.get(table, ""))
            for table in tables
            if (published_at := outcomes.last_published_at(table))
        }
        timed_schedules = build_timed_schedules(facts.schedules, outcomes, facts.open_entries, now)
        scheduled_runs = ScheduledRuns.collect(facts.open_entries, failed_runs)
        problems = self._schedule_problems().values()
        schedule_alarms = find_schedule_alarms([item for item in problems if not item.is_transient], facts.declared)
        transient_alarms = find_schedule_alarms([item for item in problems if item.is_transient], facts.declared)
        if not self._are_declared():
            transient_alarms += find_undeclared_alarm(
                [item.name for item in facts.schedules if item.paused_at is None], now
            )
        return [
            *find_failure_alarms(failed_runs, facts.declared, [item.name for item in facts.schedules], published_times),
            *find_lateness_alarms(facts.declared, timed_schedules, published_times, now, scheduled_runs),
            *schedule_alarms,
            *debounce.update([*transient_alarms, *facts.transient_alarms, *self._find_backlog_alarms(facts, now)], now),
        ]

    def _find_backlog_alarms(self, facts: _AlarmFacts, now: datetime) -> "list[Alarm]":
        """Return the alarm about unread rows; they are measured only if no worker is running, and not each time."""
        if facts.worker_count:
            self._measured_at, self._backlog_alarms = None, []
        elif self._measured_at is None or now - self._measured_at >= _MEASURE_INTERVAL:
            self._measured_at = now
            try:
                readers = self._list_backlogs()
            except Exception as error:  # the lake can't be read: that must not hide the other alarms
                LOG.warning("backlogs can't be measured: %s", error)
                return self._backlog_alarms
            self._backlog_alarms = find_backlog_alarm(readers, facts.declared, facts.worker_count, format_time(now))
        return self._backlog_alarms

    def release_lease(self) -> None:
        """Release the lease, so that another service can take over."""
        self._lease.release()


def _read_facts(connection: "Connection", now: datetime) -> _AlarmFacts:
    declared_flow = declarations.read_declarations(connection)
    open_entries = run_queue.list_entries(connection, states=queue_entry.OPEN_STATES)
    queued_entries = [entry for entry in open_entries if entry.state == queue_entry.QUEUED]
    worker_count = len(workers.list_alive(connection, workers.WORKER))
    transient_alarms = [
        *find_stream_alarms(streams.list_streams(connection).values(), declared_flow),
        *find_sink_alarms(sink_positions.read_positions(connection), declared_flow),
        *find_worker_alarm(queued_entries, worker_count, backfills.list_paused_causes(connection), format_time(now)),
        *find_disk_alarm(queued_entries),
    ]
    return _AlarmFacts(
        declared_flow,
        schedules.list_schedules(connection),
        open_entries,
        transient_alarms,
        worker_count,
        alarms.read_active_alarms(connection),
    )
