"""Parse durations as users write them: `30 days`, `12 hours`, `90s`. Pure: text in, seconds out."""

import re

from runnel.errors import Mistake
from runnel.names import quote_value

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400}
_SHORT = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"\s*(?P<count>\d{1,9})\s*(?P<unit>[a-z]+)\s*\Z", re.ASCII)
FIX = "write a number and a unit: 30 days, 12 hours, 90 minutes, 0s"


def parse_duration(text: object, code: str = "DECLARE_DURATION") -> int:
    """Return a duration in seconds.

    >>> parse_duration("30 days"), parse_duration("12 hours"), parse_duration("0s")
    (2592000, 43200, 0)
    """
    match = _DURATION.match(text) if isinstance(text, str) else None
    unit = match["unit"] if match else ""
    unit_seconds = _SHORT.get(unit) or _UNITS.get(unit.removesuffix("s"))
    if match is None or unit_seconds is None:
        raise Mistake(code, f"{quote_value(text)} is not a duration", fix=FIX)
    return int(match["count"]) * unit_seconds
