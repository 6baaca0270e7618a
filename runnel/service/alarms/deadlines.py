"""Whether a table is ready by its deadline, and a forecast of it before. Pure: facts and the time are passed in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock_time
from functools import lru_cache
from typing import TYPE_CHECKING

from runnel.declare.options.deadline import Deadline
from runnel.project.inspection.schedule_times import due, times

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
_WINDOWS = (timedelta(hours=1), timedelta(hours=26), timedelta(days=8), timedelta(days=40))
_BACK = 40  # days after which nobody asks for a deadline any more
_MOST = 5000


@dataclass(frozen=True)
class Timed:
    """A schedule that makes a table. `seconds` is what its runs take, `begun_at` when one began that is not over.

    One that waits has begun now. `queued` is the last of its times that was. Without `cron` and `every` only a change
    makes it due.
    """

    name: str
    cron: str | None = None
    tz: str | None = None
    every: str | None = None
    is_paused: bool = False
    seconds: float = 0.0
    begun_at: datetime | None = None
    queued: datetime | None = None

    @property
    def has_times(self) -> bool:
        """Tell whether the clock makes it due."""
        return self.cron is not None or self.every is not None


@dataclass(frozen=True)
class Term:
    """A table that was made at `start` or later is ready; it should be so at `by`."""

    start: datetime
    by: datetime


@dataclass(frozen=True)
class Verdict:
    """A table that is late, or will be. `ready_at` is the forecast, None where nothing is known."""

    is_late: bool
    term: Term
    ready_at: datetime | None


def judge(
    deadline: Deadline, schedules: Sequence[Timed], made_at: datetime | None, since: datetime, now: datetime
) -> Verdict | None:
    """Return what is wrong about a table, or None. Deadlines before `since` don't count."""
    ready_at = forecast(schedules, now)
    passed = passed_term(deadline, schedules, now)
    if passed is not None and passed.by > since and not _is_made(made_at, passed):
        return Verdict(True, passed, ready_at)
    coming = coming_term(deadline, schedules, now)
    if coming is None or _is_made(made_at, coming) or ready_at is None or ready_at <= coming.by:
        return None
    return Verdict(False, coming, ready_at)


def forecast(schedules: Iterable[Timed], now: datetime) -> datetime | None:
    """Return when a table will be made next, or None where no time says so."""
    found = []
    for one in schedules:
        took = timedelta(seconds=one.seconds)
        if one.begun_at is not None:
            found.append(max(one.begun_at + took, now))
        elif not one.is_paused:
            found += [max(at, now) + took for at in _next(one, one.queued or now)]
    return min(found, default=None)


def passed_term(deadline: Deadline, schedules: Sequence[Timed], now: datetime) -> Term | None:
    """Return the last term whose deadline is over."""
    if deadline.seconds is not None:
        length = timedelta(seconds=deadline.seconds)
        start = last_due(schedules, now - length)
        return Term(start, start + length) if start is not None else None
    for back in range(_BACK):
        term = _term_of(deadline, _times_of(schedules), _today(deadline, now) - back * _DAY)
        if term is not None and term.by <= now:
            return term
    return None


def coming_term(deadline: Deadline, schedules: Sequence[Timed], now: datetime) -> Term | None:
    """Return the term that goes on now."""
    if deadline.seconds is not None:
        start = last_due(schedules, now)
        by = start + timedelta(seconds=deadline.seconds) if start is not None else None
        return Term(start, by) if start is not None and by is not None and now < by else None
    for ahead in (0, 1):
        term = _term_of(deadline, _times_of(schedules), _today(deadline, now) + ahead * _DAY)
        if term is not None and term.start <= now < term.by:
            return term
    return None


def last_due(schedules: Iterable[Timed], until: datetime) -> datetime | None:
    """Return the last time that one of some schedules was due, up to a moment."""
    found = []
    for one in schedules:
        if not one.has_times:
            continue
        for window in _WINDOWS:
            dues = due(one.cron, one.tz, one.every, until - window, until, _MOST)
            if dues:
                found.append(dues[-1])
                break
    return max(found, default=None)


@lru_cache(10_000)  # it is asked every second, and is the same all day
def _term_of(deadline: Deadline, timed: tuple[Timed, ...], day: date) -> Term | None:
    """Return the term of a day; None where none of its schedules with times is due for it."""
    assert deadline.clock is not None and deadline.zone is not None
    by, midnight = _at(day, deadline.clock, deadline.zone), _at(day, clock_time(), deadline.zone)
    just_before = midnight - timedelta(microseconds=1)
    if not timed or any(at <= by for one in timed for at in _next(one, just_before)):
        return Term(midnight, by)
    evening = last_due(timed, midnight)
    return Term(evening, by) if evening is not None and evening > by - _DAY else None


def _times_of(schedules: Iterable[Timed]) -> tuple[Timed, ...]:
    """Return the schedules with times, and nothing but their times."""
    return tuple(Timed(one.name, one.cron, one.tz, one.every) for one in schedules if one.has_times)


def _next(one: Timed, after: datetime) -> list[datetime]:
    found = next(times(one.cron, one.tz, one.every, after), None)
    return [found] if found is not None else []


def _at(day: date, clock: clock_time, zone: "ZoneInfo") -> datetime:
    return datetime.combine(day, clock, zone).astimezone(UTC)


def _today(deadline: Deadline, now: datetime) -> date:
    return now.astimezone(deadline.zone).date()


def _is_made(made_at: datetime | None, term: Term) -> bool:
    return made_at is not None and made_at >= term.start
