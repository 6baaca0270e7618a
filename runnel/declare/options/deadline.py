"""Parse deadlines of tasks as users write them: `08:00`, `08:00:30 Asia/Shanghai`, or `2 hours`. Pure."""

import re
from dataclasses import dataclass
from datetime import time
from typing import TYPE_CHECKING

from runnel.declare.options.duration import parse_duration
from runnel.errors import Mistake
from runnel.names import quote_value

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_CLOCK = re.compile(
    r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(:(?P<second>[0-5]\d))?(\s+(?P<zone>\S+))?\Z", re.ASCII
)
FIX = "write a time of day, 06:30, 06:30:15 or 06:30 Asia/Shanghai, or a duration, 2 hours or 90 seconds"


@dataclass(frozen=True)
class Deadline:
    """A time of each day in a time zone, or a number of seconds after the schedule is due."""

    clock: time | None = None
    zone: "ZoneInfo | None" = None
    seconds: int | None = None


def parse_deadline(text: object) -> Deadline:
    """Parse a deadline: a duration, or a time of day with a time zone.

    >>> parse_deadline("2 hours").seconds
    7200
    >>> deadline = parse_deadline("08:00 Asia/Shanghai")
    >>> deadline.clock, str(deadline.zone)
    (datetime.time(8, 0), 'Asia/Shanghai')
    >>> parse_deadline("08:00:30").clock
    datetime.time(8, 0, 30)
    """
    match = _CLOCK.match(text) if isinstance(text, str) else None
    if match is None:
        try:
            return Deadline(seconds=parse_duration(text))
        except Mistake:
            raise Mistake("DECLARE_DEADLINE", f"`deadline` can't be {quote_value(text)}", fix=FIX) from None
    zone = find_time_zone(match["zone"] or "UTC")
    if zone is None:
        fix = "use a name such as Asia/Shanghai or UTC"
        raise Mistake("DECLARE_DEADLINE", f"{quote_value(match['zone'])} is not a time zone", fix=fix)
    return Deadline(time(int(match["hour"]), int(match["minute"]), int(match["second"] or 0)), zone)


def find_time_zone(name: object) -> "ZoneInfo | None":
    """Return the time zone of a name, or None if there is none."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name) if isinstance(name, str) else None
    except (ValueError, OSError, KeyError):
        return None
