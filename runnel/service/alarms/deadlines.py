"""Decide whether a table meets its deadline, and forecast when it will be ready.

Pure: the caller passes in the facts and the time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from functools import lru_cache
from typing import TYPE_CHECKING

from runnel.declare.options.deadline import Deadline
from runnel.project.inspection.schedule_times import iter_schedule_times, list_due_times

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
_LOOKBACKS = (timedelta(hours=1), timedelta(hours=26), timedelta(days=8), timedelta(days=40))
_MAX_DAYS_BACK = 40  # a deadline older than so many days is not looked for
_MAX_TIMES = 5000


@dataclass(frozen=True)
class TimedSchedule:
    """A schedule that computes a table.

    `run_seconds` is how long its runs take. `started_at` is when its open run started; a queued run counts as started
    now. `last_queued_at` is the last due time that was queued. Without `cron` and `every`, only changes make it due.
    """

    name: str
    cron: str | None = None
    tz: str | None = None
    every: str | None = None
    is_paused: bool = False
    run_seconds: float = 0.0
    started_at: datetime | None = None
    last_queued_at: datetime | None = None

    @property
    def has_times(self) -> bool:
        """Return whether the schedule is due at times, not only on changes."""
        return self.cron is not None or self.every is not None


@dataclass(frozen=True)
class DeadlineTerm:
    """The period of one deadline: the table must be published between `start_at` and `due_at`."""

    start_at: datetime
    due_at: datetime


@dataclass(frozen=True)
class DeadlineVerdict:
    """A table that is late, or will be. `ready_at` is the forecast, None if there is none."""

    is_late: bool
    term: DeadlineTerm
    ready_at: datetime | None


def judge_deadline(
    deadline: Deadline,
    schedules: Sequence[TimedSchedule],
    published_at: datetime | None,
    since: datetime,
    now: datetime,
) -> DeadlineVerdict | None:
    """Return whether a table is late or will be; None if it is on time. Deadlines before `since` don't count."""
    ready_at = forecast_ready_at(schedules, now)
    passed_deadline = find_passed_term(deadline, schedules, now)
    if passed_deadline is not None and passed_deadline.due_at > since and not _is_ready(published_at, passed_deadline):
        return DeadlineVerdict(True, passed_deadline, ready_at)
    current_deadline = find_current_term(deadline, schedules, now)
    if (
        current_deadline is None
        or _is_ready(published_at, current_deadline)
        or ready_at is None
        or ready_at <= current_deadline.due_at
    ):
        return None
    return DeadlineVerdict(False, current_deadline, ready_at)


def forecast_ready_at(schedules: Iterable[TimedSchedule], now: datetime) -> datetime | None:
    """Return when a table will be ready next, or None if no schedule has a time for it."""
    candidates = []
    for schedule in schedules:
        run_time = timedelta(seconds=schedule.run_seconds)
        if schedule.started_at is not None:
            candidates.append(max(schedule.started_at + run_time, now))
        elif not schedule.is_paused:
            candidates += [
                max(due_at, now) + run_time for due_at in _next_times(schedule, schedule.last_queued_at or now)
            ]
    return min(candidates, default=None)


def find_passed_term(deadline: Deadline, schedules: Sequence[TimedSchedule], now: datetime) -> DeadlineTerm | None:
    """Return the last term whose deadline has passed."""
    if deadline.seconds is not None:
        length = timedelta(seconds=deadline.seconds)
        start_at = find_last_due(schedules, now - length)
        return DeadlineTerm(start_at, start_at + length) if start_at is not None else None
    for days_back in range(_MAX_DAYS_BACK):
        term = _find_term(deadline, _keep_times_only(schedules), _local_date(deadline, now) - days_back * _DAY)
        if term is not None and term.due_at <= now:
            return term
    return None


def find_current_term(deadline: Deadline, schedules: Sequence[TimedSchedule], now: datetime) -> DeadlineTerm | None:
    """Return the term that contains `now`."""
    if deadline.seconds is not None:
        start_at = find_last_due(schedules, now)
        due_at = start_at + timedelta(seconds=deadline.seconds) if start_at is not None else None
        return DeadlineTerm(start_at, due_at) if start_at is not None and due_at is not None and now < due_at else None
    for days_ahead in (0, 1):
        term = _find_term(deadline, _keep_times_only(schedules), _local_date(deadline, now) + days_ahead * _DAY)
        if term is not None and term.start_at <= now < term.due_at:
            return term
    return None


def find_last_due(schedules: Iterable[TimedSchedule], until: datetime) -> datetime | None:
    """Return the last time up to `until` at which one of the schedules was due."""
    last_times = []
    for schedule in schedules:
        if not schedule.has_times:
            continue
        for lookback in _LOOKBACKS:
            times_due = list_due_times(
                schedule.cron, schedule.tz, schedule.every, until - lookback, until, limit=_MAX_TIMES
            )
            if times_due:
                last_times.append(times_due[-1])
                break
    return max(last_times, default=None)


@lru_cache(10_000)  # called every second, and the same all day
def _find_term(deadline: Deadline, schedules: tuple[TimedSchedule, ...], day: date) -> DeadlineTerm | None:
    """Return the term of a day; None if none of its schedules with times is due for it."""
    assert deadline.clock is not None and deadline.zone is not None
    due_at, midnight = _to_utc(day, deadline.clock, deadline.zone), _to_utc(day, clock_time(), deadline.zone)
    just_before = midnight - timedelta(microseconds=1)
    if not schedules or any(
        next_at <= due_at for schedule in schedules for next_at in _next_times(schedule, just_before)
    ):
        return DeadlineTerm(midnight, due_at)
    previous_due_at = find_last_due(schedules, midnight)
    return (
        DeadlineTerm(previous_due_at, due_at)
        if previous_due_at is not None and previous_due_at > due_at - _DAY
        else None
    )


def _keep_times_only(schedules: Iterable[TimedSchedule]) -> tuple[TimedSchedule, ...]:
    """Return the schedules with times, reduced to name and times so that they can be cache keys."""
    return tuple(
        TimedSchedule(schedule.name, schedule.cron, schedule.tz, schedule.every)
        for schedule in schedules
        if schedule.has_times
    )


def _next_times(schedule: TimedSchedule, after: datetime) -> list[datetime]:
    next_at = next(iter_schedule_times(schedule.cron, schedule.tz, schedule.every, after), None)
    return [next_at] if next_at is not None else []


def _to_utc(day: date, clock: clock_time, zone: "ZoneInfo") -> datetime:
    return datetime.combine(day, clock, zone).astimezone(UTC)


def _local_date(deadline: Deadline, now: datetime) -> date:
    return now.astimezone(deadline.zone).date()


def _is_ready(published_at: datetime | None, term: DeadlineTerm) -> bool:
    return published_at is not None and published_at >= term.start_at
