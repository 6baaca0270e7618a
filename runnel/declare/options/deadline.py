"""Deadlines of tasks as users write them: `08:00`, `08:00 Asia/Shanghai`, or `2 hours`. Pure."""

import re
from dataclasses import dataclass
from datetime import time
from typing import TYPE_CHECKING

from runnel.declare.options.duration import seconds_of
from runnel.errors import Mistake
from runnel.names import shown

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_CLOCK = re.compile(r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(\s+(?P<zone>\S+))?\Z", re.ASCII)
FIX = "write a time of day, 06:30 or 06:30 Asia/Shanghai, or a duration, 2 hours"


@dataclass(frozen=True)
class Deadline:
    """A time of each day in a zone, or so many seconds after its schedule is due."""

    clock: time | None = None
    zone: "ZoneInfo | None" = None
    seconds: int | None = None


def deadline_of(text: object) -> Deadline:
    """Return what a text says.

    >>> deadline_of("2 hours").seconds
    7200
    >>> found = deadline_of("08:00 Asia/Shanghai")
    >>> found.clock, str(found.zone)
    (datetime.time(8, 0), 'Asia/Shanghai')
    """
    found = _CLOCK.match(text) if isinstance(text, str) else None
    if found is None:
        try:
            return Deadline(seconds=seconds_of(text))
        except Mistake:
            raise Mistake("DECLARE_DEADLINE", f"`deadline` can't be {shown(text)}", fix=FIX) from None
    zone = zone_of(found["zone"] or "UTC")
    if zone is None:
        fix = "use a name such as Asia/Shanghai or UTC"
        raise Mistake("DECLARE_DEADLINE", f"{shown(found['zone'])} is not a time zone", fix=fix)
    return Deadline(time(int(found["hour"]), int(found["minute"])), zone)


def zone_of(name: object) -> "ZoneInfo | None":
    """Return a time zone, or None where there is none of that name."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name) if isinstance(name, str) else None
    except (ValueError, OSError, KeyError):
        return None
