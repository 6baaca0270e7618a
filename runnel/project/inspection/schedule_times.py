"""Compute when a schedule is due. Pure: the caller passes in the time.

A cron text is evaluated in its time zone. A local time that a clock change skips is due right after the change; one
that occurs twice is due the first time. An interval counts from the start of 1970, so that its times don't depend on
when the service was started.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from runnel.declare.options.cron_syntax import expand_nickname
from runnel.declare.options.duration import parse_duration
from runnel.errors import Mistake, RunnelError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


def iter_schedule_times(cron: str | None, tz: str | None, every: str | None, after: datetime) -> Iterator[datetime]:
    """Yield the times of a schedule after `after`, in UTC, without end; raise a Mistake if the schedule is invalid.

    >>> start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    >>> times = iter_schedule_times("30 2 * * *", "Europe/Berlin", None, start)
    >>> [f"{next(times):%d %H:%M}" for _ in range(2)]
    ['29 01:00', '30 00:30']
    >>> f"{next(iter_schedule_times(None, None, '10 minutes', start)):%H:%M}"
    '12:10'
    """
    try:
        yield from _iter_times(cron, tz, every, after)
    except RunnelError:
        raise
    except Exception as error:  # declared by another version, a time zone unknown to this machine, or a bug
        when = f"cron {cron!r} in {tz or 'UTC'}" if cron is not None else f"every {every!r}"
        what = f"can't compute when it is due, {when}: {error}"
        raise Mistake(
            "SCHEDULE_UNREADABLE", what, fix="correct it in its flow file; `runnel validate` checks"
        ) from error


def _iter_times(cron: str | None, tz: str | None, every: str | None, after: datetime) -> Iterator[datetime]:
    if cron is not None:
        cron = expand_nickname(cron)
        zone, fields = ZoneInfo(tz or "UTC"), cron.split()
        follows_real_hours = any(
            field.startswith("*") for field in fields[:2]
        )  # every minute or hour: elapsed time counts
        yield from _iter_real_times(cron, zone, after) if follows_real_hours else _iter_local_times(cron, zone, after)
    if every is not None:
        step = timedelta(seconds=parse_duration(every))
        due_at = _EPOCH + ((after - _EPOCH) // step) * step
        while True:
            due_at += step
            yield due_at


def _iter_local_times(cron: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield the times of a schedule at fixed hours of the day, each local time once."""
    for local_time in CronSim(cron, after.astimezone(zone)):
        if (
            due_at := local_time.astimezone(UTC)
        ) > after:  # in an hour that occurs twice, a time of the first may be over
            yield due_at


def _iter_real_times(cron: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield the times of a schedule that follows elapsed time, for each period between clock changes of the zone."""
    after = after.replace(microsecond=0)
    while True:
        offset = (after + _SECOND).astimezone(zone).utcoffset() or timedelta()
        for local_time in CronSim(cron, after.astimezone(timezone(offset))):
            due_at = local_time.astimezone(UTC)
            if due_at.astimezone(zone).utcoffset() != offset:
                after = _find_clock_change(zone, offset, after + _SECOND, due_at)
                break
            yield due_at
            after = due_at
        else:
            return  # it is never due again


def _find_clock_change(zone: ZoneInfo, offset: timedelta, before: datetime, after: datetime) -> datetime:
    """Return the last second before the clock change of a zone between `before` and `after`."""
    while after - before > _SECOND:
        middle = before + (after - before) // (2 * _SECOND) * _SECOND
        is_before = middle.astimezone(zone).utcoffset() == offset
        before, after = (middle, after) if is_before else (before, middle)
    return before


def list_due_times(
    cron: str | None, tz: str | None, every: str | None, after: datetime, now: datetime, *, limit: int
) -> list[datetime]:
    """Return the times of a schedule after `after` and until `now`, at most `limit`."""
    due_times: list[datetime] = []
    for due_at in iter_schedule_times(cron, tz, every, after):
        if due_at > now or len(due_times) == limit:
            break
        due_times.append(due_at)
    return due_times


@lru_cache(10_000)
def is_valid_schedule(cron: str | None, tz: str | None, every: str | None) -> bool:
    """Return whether the times of a schedule can be computed.

    >>> is_valid_schedule("0 2 * * *", None, None), is_valid_schedule("0 0 31 2 *", None, None)
    (True, False)
    """
    try:
        next(iter_schedule_times(cron, tz, every, _EPOCH), None)
    except RunnelError:
        return False
    return True
