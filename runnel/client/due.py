"""When a schedule is due. Pure: the caller passes the time in.

A cron text is read in its time zone. A local time that a change of the clock skips is due right after the change; one
that comes twice is due the first time. An interval counts from the start of 1970, so that its times don't depend on
when somebody started to look.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim

from runnel.declare.duration import seconds_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def times(cron: str | None, tz: str | None, every: str | None, after: datetime) -> Iterator[datetime]:
    """Yield the times of a schedule after a moment, in UTC, without end.

    >>> start = datetime(2026, 3, 28, 12, tzinfo=UTC)
    >>> found = times("30 2 * * *", "Europe/Berlin", None, start)
    >>> [f"{next(found):%d %H:%M}" for _ in range(2)]
    ['29 01:00', '30 00:30']
    >>> f"{next(times(None, None, '10 minutes', start)):%H:%M}"
    '12:10'
    """
    if cron is not None:
        for found in CronSim(cron, after.astimezone(ZoneInfo(tz or "UTC"))):
            yield found.astimezone(UTC)
    if every is not None:
        step = timedelta(seconds=seconds_of(every))
        at = _EPOCH + ((after - _EPOCH) // step) * step
        while True:
            at += step
            yield at


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
