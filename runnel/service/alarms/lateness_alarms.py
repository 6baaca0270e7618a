"""Build alarms for tables that are late, or are forecast to be."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from runnel.declare.options.deadline import parse_deadline
from runnel.errors import RunnelError
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.control.alarms import ALARM, WARNING, Alarm
from runnel.project.inspection.schedule_times import is_valid_schedule
from runnel.service.alarms.deadlines import DeadlineVerdict, TimedSchedule, judge_deadline
from runnel.service.alarms.lateness_fixes import NO_RUNS, ScheduledRuns, describe_lateness_fix

if TYPE_CHECKING:
    from runnel.lake.control.declarations import ProjectDeclarations, TableDeclaration
    from runnel.lake.control.queue_entry import QueueEntry
    from runnel.lake.control.schedules import ScheduleRecord
    from runnel.service.alarms.run_outcomes import RunOutcomes


def find_lateness_alarms(
    declared: "ProjectDeclarations",
    timed_schedules: Mapping[str, TimedSchedule],
    published_times: Mapping[str, str],
    now: datetime,
    runs: ScheduledRuns = NO_RUNS,
) -> list[Alarm]:
    """Return an alarm or a warning for each table that is not ready in time. Pure: `published_times` come in."""
    late_alarms = []
    for watched in list_tables_with_deadline(declared):
        blocks = tuple(declared.find_blocked([watched.table]))
        try:
            schedules = [timed_schedules[name] for name in watched.schedules if name in timed_schedules]
            published_at = parse_time(published_times[watched.table]) if watched.table in published_times else None
            verdict = judge_deadline(
                parse_deadline(watched.deadline), schedules, published_at, parse_time(watched.since), now
            )
            if verdict is not None:
                fix = describe_lateness_fix(watched.table, schedules, runs)
                late_alarms.append(replace(_build_late_alarm(watched, verdict, blocks, now), fix=fix))
        except Exception as error:  # an unreadable deadline must not hide the alarms of other tables
            late_alarms.append(_build_unreadable_alarm(watched, error, blocks))
    return late_alarms


def _build_unreadable_alarm(watched: "TableDeclaration", error: Exception, blocks: tuple[str, ...]) -> Alarm:
    reason = error.what if isinstance(error, RunnelError) else f"{type(error).__name__}: {error}"
    what = f"it is unknown whether `{watched.table}` is late: its deadline {watched.deadline!r} can't be read: {reason}"
    fix = "correct `deadline=` of its task; `runnel validate` checks it"
    return Alarm(f"late/{watched.table}", "late", what, watched.since, ALARM, (watched.table,), blocks, fix)


def list_tables_with_deadline(declared: "ProjectDeclarations") -> "list[TableDeclaration]":
    """Return the tables that have a deadline."""
    return [watched for watched in declared.tables.values() if watched.deadline is not None]


def build_timed_schedules(
    schedules: "Iterable[ScheduleRecord]", outcomes: "RunOutcomes", open_entries: "Iterable[QueueEntry]", now: datetime
) -> dict[str, TimedSchedule]:
    """Return the readable schedules on main, with the duration of their runs and when an open run started."""
    started_at = {
        schedule.cause: parse_time(schedule.started_at) if schedule.state == "running" and schedule.started_at else now
        for schedule in open_entries
    }
    timed_schedules = {}
    for schedule in schedules:
        declared, cause = schedule.declared, f"schedule/{schedule.name}"
        times = (declared.get("cron"), declared.get("tz"), declared.get("every"))
        if declared.get("branch", "main") == "main" and is_valid_schedule(*times):
            timing = (*times, schedule.paused_at is not None)
            last_queued_at = parse_time(schedule.cursor.get("slot", schedule.seen_at))
            timed_schedules[schedule.name] = TimedSchedule(
                schedule.name, *timing, outcomes.typical_seconds(cause) or 0.0, started_at.get(cause), last_queued_at
            )
    return timed_schedules


def _build_late_alarm(
    watched: "TableDeclaration", verdict: DeadlineVerdict, blocks: tuple[str, ...], now: datetime
) -> Alarm:
    zone = parse_deadline(watched.deadline).zone or ZoneInfo("UTC")
    due_text = _format_local_time(verdict.term.due_at, zone, now)
    if verdict.is_late:
        what = f"`{watched.table}` is late: it was due by {due_text} {zone}"
        what += f", and is forecast for {_format_forecast(verdict.ready_at, zone, now)}" if verdict.ready_at else ""
    else:
        assert verdict.ready_at is not None
        ready_text = _format_forecast(verdict.ready_at, zone, now)
        what = f"`{watched.table}` will be late: forecast ready at {ready_text}, and its deadline is {due_text} {zone}"
    level, since = (ALARM, verdict.term.due_at) if verdict.is_late else (WARNING, now)
    return Alarm(f"late/{watched.table}", "late", what, format_time(since), level, (watched.table,), blocks)


def _format_forecast(at: datetime, zone: ZoneInfo, now: datetime) -> str:
    """Format a forecast, rounded up to a minute: so it is after a deadline that it misses by seconds.

    >>> from datetime import UTC
    >>> at = datetime(2026, 1, 2, 12, 0, 20, tzinfo=UTC)
    >>> _format_forecast(at, ZoneInfo("UTC"), at), _format_forecast(at.replace(second=0), ZoneInfo("UTC"), at)
    ('12:01', '12:00')
    """
    is_whole_minute = not at.second and not at.microsecond
    rounded = at if is_whole_minute else at.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return _format_local_time(rounded, zone, now)


def _format_local_time(at: datetime, zone: ZoneInfo, now: datetime) -> str:
    """Format a time for people, with the date if it is not today, and with seconds if it has any.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    >>> shanghai, utc = ZoneInfo("Asia/Shanghai"), ZoneInfo("UTC")
    >>> _format_local_time(noon.replace(day=3), shanghai, noon), _format_local_time(noon, utc, noon)
    ('2026-01-03 20:00', '12:00')
    >>> _format_local_time(noon.replace(second=30), utc, noon)
    '12:00:30'
    """
    local = at.astimezone(zone)
    clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    return clock if local.date() == now.astimezone(zone).date() else f"{local:%Y-%m-%d} {clock}"
