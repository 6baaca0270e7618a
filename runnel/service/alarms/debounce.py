"""Debounce alarms: a problem must last a while before it is raised, and must be gone a while before it is over.

So a stream that fails, restarts and fails again is one alarm. Only the time that this process observed counts: what
the catalog says from before its start may be outdated.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from runnel.lake.control.alarms import Alarm

MIN_DURATION = timedelta(minutes=1)


@dataclass
class _ObservedAlarm:
    alarm: Alarm
    since: datetime
    is_raised: bool
    ok_since: datetime | None = None


class Debounce:
    """The observed problems. `raised_alarms` were raised before, and end only once they are observed to be gone.

    `raised_after` says how long problems with a certain key must last, if that is not `MIN_DURATION`.
    """

    def __init__(
        self, raised_alarms: Iterable[Alarm], now: datetime, raised_after: Mapping[str, timedelta] | None = None
    ) -> None:
        self._raised_after = raised_after or {}
        self._observed = {alarm.key: _ObservedAlarm(alarm, now, True) for alarm in raised_alarms}

    def update(self, current_alarms: Iterable[Alarm], now: datetime) -> list[Alarm]:
        """Add the current observation, and return the alarms that have lasted long enough to be raised."""
        alarms_by_key = {alarm.key: alarm for alarm in current_alarms}
        for key, alarm in alarms_by_key.items():
            observed = self._observed.setdefault(key, _ObservedAlarm(alarm, now, False))
            observed.alarm, observed.ok_since = alarm, None
            min_duration = self._raised_after.get(key, MIN_DURATION)
            observed.is_raised = observed.is_raised or now - observed.since >= min_duration
        for key in self._observed.keys() - alarms_by_key.keys():
            observed = self._observed[key]
            observed.ok_since = observed.ok_since or now
            if now - observed.ok_since >= MIN_DURATION:
                del self._observed[key]
        return [observed.alarm for observed in self._observed.values() if observed.is_raised]
