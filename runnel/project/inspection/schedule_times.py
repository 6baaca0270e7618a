"""When a schedule is due. Pure: the caller passes the time in.

A cron text is read in its time zone. A local time that a change of the clock skips is due right after the change; one
that comes twice is due the first time. An interval counts from the start of 1970, so that its times don't depend on
when somebody started to look.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from runnel.declare.options.duration import seconds_of
from runnel.errors import Mistake, RunnelError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


def times(cron: str | None, tz: str | None, every: str | None, after: datetime) -> Iterator[datetime]:
    """Yield the times of a schedule after a moment, in UTC, without end; raise a Mistake if it can't be read.

    >>> start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    >>> found = times("30 2 * * *", "Europe/Berlin", None, start)
    >>> [f"{next(found):%d %H:%M}" for _ in range(2)]
    ['29 01:00', '30 00:30']
    >>> f"{next(times(None, None, '10 minutes', start)):%H:%M}"
    '12:10'
    """
    try:
        yield from _times(cron, tz, every, after)
    except RunnelError:
        raise
    except Exception as error:  # what another version declared, a zone that this machine does not know, a defect
        when = f"cron {cron!r} in {tz or 'UTC'}" if cron is not None else f"every {every!r}"
        what = f"nobody can say when it is due, {when}: {error}"
        raise Mistake(
            "SCHEDULE_UNREADABLE", what, fix="correct it in its flow file; `runnel validate` checks"
        ) from error


def _times(cron: str | None, tz: str | None, every: str | None, after: datetime) -> Iterator[datetime]:
    if cron is not None:
        zone, fields = ZoneInfo(tz or "UTC"), cron.split()
        is_real = any(field.startswith("*") for field in fields[:2])  # by the minute or the hour: real ones count
        yield from _real(cron, zone, after) if is_real else _local(cron, zone, after)
    if every is not None:
        step = timedelta(seconds=seconds_of(every))
        at = _EPOCH + ((after - _EPOCH) // step) * step
        while True:
            at += step
            yield at


def _local(cron: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield times that name hours of a day, each local time once."""
    for found in CronSim(cron, after.astimezone(zone)):
        if (at := found.astimezone(UTC)) > after:  # within an hour that comes twice, one of the first is over
            yield at


def _real(cron: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield times that follow real hours: those of each stretch in which the clock of a zone is not changed."""
    after = after.replace(microsecond=0)
    while True:
        offset = (after + _SECOND).astimezone(zone).utcoffset() or timedelta()
        for found in CronSim(cron, after.astimezone(timezone(offset))):
            at = found.astimezone(UTC)
            if at.astimezone(zone).utcoffset() != offset:
                after = _changed(zone, offset, after + _SECOND, at)
                break
            yield at
            after = at
        else:
            return  # it never comes again


def _changed(zone: ZoneInfo, offset: timedelta, before: datetime, after: datetime) -> datetime:
    """Return the last second before a zone's clock is changed, which happens between two moments."""
    while after - before > _SECOND:
        middle = before + (after - before) // (2 * _SECOND) * _SECOND
        is_before = middle.astimezone(zone).utcoffset() == offset
        before, after = (middle, after) if is_before else (before, middle)
    return before


def due(
    cron: str | None, tz: str | None, every: str | None, after: datetime, now: datetime, most: int
) -> list[datetime]:
    """Return the times of a schedule after one moment and until another, at most so many."""
    found: list[datetime] = []
    for at in times(cron, tz, every, after):
        if at > now or len(found) == most:
            break
        found.append(at)
    return found


@lru_cache(10_000)
def is_readable(cron: str | None, tz: str | None, every: str | None) -> bool:
    """Tell whether the times of a schedule can be read.

    >>> is_readable("0 2 * * *", None, None), is_readable("0 0 31 2 *", None, None)
    (True, False)
    """
    try:
        next(times(cron, tz, every, _EPOCH), None)
    except RunnelError:
        return False
    return True
