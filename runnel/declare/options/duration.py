"""Durations as users write them: `30 days`, `12 hours`, `90s`. Pure: text in, seconds out."""

import re

from runnel.errors import Mistake
from runnel.names import shown

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400}
_SHORT = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"\s*(?P<count>\d{1,9})\s*(?P<unit>[a-z]+)\s*\Z", re.ASCII)
FIX = "write a number and a unit: 30 days, 12 hours, 90 minutes, 0s"


def seconds_of(text: object, code: str = "DECLARE_DURATION") -> int:
    """Return a duration in seconds.

    >>> seconds_of("30 days"), seconds_of("12 hours"), seconds_of("0s")
    (2592000, 43200, 0)
    """
    found = _DURATION.match(text) if isinstance(text, str) else None
    unit = found["unit"] if found else ""
    known = _SHORT.get(unit) or _UNITS.get(unit.removesuffix("s"))
    if found is None or known is None:
        raise Mistake(code, f"{shown(text)} is not a duration", fix=FIX)
    return int(found["count"]) * known
