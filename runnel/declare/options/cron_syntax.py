"""Validate the five fields of a cron expression: minute, hour, day of month, month, day of week. Pure."""

import re
from datetime import UTC, datetime

from runnel.errors import Mistake
from runnel.names import quote_value

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_START = datetime(2024, 1, 1, tzinfo=UTC)
_PART = re.compile(r"(\*|(?P<low>\w+)(-(?P<high>\w+))?)(/(?P<step>\d+))?\Z", re.ASCII)


def validate_cron(text: object) -> None:
    """Raise if a text is not a cron expression.

    >>> validate_cron("*/15 8-18 * * mon-fri")
    """
    fields = text.split() if isinstance(text, str) else []
    if len(fields) != len(_FIELDS):
        fix = 'write five fields: minute, hour, day of month, month, day of week; "0 2 * * *" is every day at 2:00'
        raise Mistake("DECLARE_CRON", f"{quote_value(text)} is not a cron text", fix=fix)
    for field, (name, low, high) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if not _is_valid_part(part, name, low, high):
                what = f"{quote_value(field)} in {quote_value(text)} is not a {name}"
                raise Mistake("DECLARE_CRON", what, fix=f"use {low} to {high}, *, lists, ranges a-b, or steps */n")
    if not _is_ever_due(str(text)):
        what = f"{quote_value(text)} is never due: none of the months that it names has such a day"
        raise Mistake("DECLARE_CRON", what, fix="name a day that one of its months has, such as 28 for february")


def _is_ever_due(text: str) -> bool:
    """Return whether a cron expression is ever due, by the library that also computes the times of schedules.

    >>> _is_ever_due("0 0 29 2 *"), _is_ever_due("0 0 30 2 *"), _is_ever_due("0 0 30 2 mon")
    (True, False, True)
    """
    from cronsim import CronSim, CronSimError

    try:
        return next(CronSim(text, _START), None) is not None
    except CronSimError:
        return False


def _is_valid_part(part: str, name: str, low: int, high: int) -> bool:
    match = _PART.match(part)
    if match is None or match["step"] in ("0", "00"):
        return False
    ends = [_parse_number(end, name) for end in (match["low"], match["high"]) if end is not None]
    return all(end is not None and low <= end <= high for end in ends) and ends == sorted(
        ends, key=lambda end: end or 0
    )


def _parse_number(text: str, name: str) -> int | None:
    if text.isdigit():
        return int(text)
    if name == "month" and text.lower() in _MONTHS:
        return _MONTHS.index(text.lower()) + 1
    return _DAYS.index(text.lower()) if name == "day of week" and text.lower() in _DAYS else None
