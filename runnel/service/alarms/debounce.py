"""Let nobody be told of what passes by itself: only what is seen to last is an alarm, and is over only if that lasts.

So what fails, starts and fails again is one alarm. How long it lasts is what this process saw: what the catalog says
from before a start may be old.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from runnel.lake.control.alarms import Alarm

LASTS = timedelta(minutes=1)


@dataclass
class _Seen:
    alarm: Alarm
    since: datetime
    is_raised: bool
    well_since: datetime | None = None


class Patience:
    """What was seen to be wrong. `known` was raised before, and is over only if it is seen to be well."""

    def __init__(self, known: Iterable[Alarm], now: datetime) -> None:
        self._seen = {one.key: _Seen(one, now, True) for one in known}

    def lasting(self, wrong: Iterable[Alarm], now: datetime) -> list[Alarm]:
        """Return what of all that is wrong now, or was a moment ago, has lasted."""
        current = {one.key: one for one in wrong}
        for key, one in current.items():
            seen = self._seen.setdefault(key, _Seen(one, now, False))
            seen.alarm, seen.well_since = one, None
            seen.is_raised = seen.is_raised or now - seen.since >= LASTS
        for key in self._seen.keys() - current.keys():
            seen = self._seen[key]
            seen.well_since = seen.well_since or now
            if now - seen.well_since >= LASTS:
                del self._seen[key]
        return [seen.alarm for seen in self._seen.values() if seen.is_raised]
