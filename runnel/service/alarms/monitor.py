"""Check the catalog for problems, and raise or end alarms. Of several services, only the lease holder does so."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from runnel.lake.catalog.database import format_time, parse_time, read_clock
from runnel.lake.control import alarms, backfills, declarations, queue_entry, run_queue, schedules, workers
from runnel.lake.control.leader_lease import LeaderLease
from runnel.lake.flow_state import sink_positions, streams
from runnel.lake.flow_state.last_published import read_last_published
from runnel.service.alarms.debounce import Debounce
from runnel.service.alarms.failure_alarms import find_failure_alarms
from runnel.service.alarms.health_alarms import (
    find_disk_alarm,
    find_schedule_alarms,
    find_sink_alarms,
    find_stream_alarms,
    find_undeclared_alarm,
    find_worker_alarm,
)
from runnel.service.alarms.lateness_alarms import build_timed_schedules, find_lateness_alarms, list_tables_with_deadline
from runnel.service.alarms.run_outcomes import RunOutcomes

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database
    from runnel.lake.control.alarms import Alarm
    from runnel.lake.control.declarations import ProjectDeclarations
    from runnel.lake.control.queue_entry import QueueEntry
    from runnel.lake.control.schedules import ScheduleRecord
    from runnel.service.server.scheduler import ScheduleProblem

_TRANSIENT_KINDS = ("schedule", "stream", "sink", "worker", "disk")  # kinds of alarms that may end by themselves


@dataclass(frozen=True)
class _AlarmFacts:
    declared: "ProjectDeclarations"
    schedules: "list[ScheduleRecord]"
    open_entries: "list[QueueEntry]"
    transient_alarms: "list[Alarm]"  # that may end by themselves
    raised_alarms: "list[Alarm]"


class AlarmMonitor:
    """Raises and ends alarms. `clock_now` is by default the database's clock.

    `schedule_problems` returns the errors of the scheduler; `are_declared` returns whether a worker has declared the
    schedules since the service started.
    """

    def __init__(
        self,
        db: "Database",
        clock_now: Callable[[], datetime] | None = None,
        schedule_problems: "Callable[[], Mapping[str, ScheduleProblem]]" = dict,
        are_declared: Callable[[], bool] = lambda: True,
    ) -> None:
        self._db = db
        self._are_declared = are_declared
        self._schedule_problems = schedule_problems
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
            self._debounce = Debounce([alarm for alarm in facts.raised_alarms if alarm.kind in _TRANSIENT_KINDS], now)
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
        problems = self._schedule_problems().values()
        schedule_alarms = find_schedule_alarms([item for item in problems if not item.is_transient], facts.declared)
        transient_alarms = find_schedule_alarms([item for item in problems if item.is_transient], facts.declared)
        if not self._are_declared():
            transient_alarms += find_undeclared_alarm(
                [item.name for item in facts.schedules if item.paused_at is None], now
            )
        return [
            *find_failure_alarms(failed_runs, facts.declared, [item.name for item in facts.schedules], published_times),
            *find_lateness_alarms(facts.declared, timed_schedules, published_times, now),
            *schedule_alarms,
            *debounce.update([*transient_alarms, *facts.transient_alarms], now),
        ]

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
        alarms.read_alarms(connection),
    )
