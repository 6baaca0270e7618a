"""Validate the five fields of a cron expression: minute, hour, day of month, month, day of week. Pure."""

import re
from datetime import UTC, datetime

from runnel.errors import Mistake, did_you_mean
from runnel.names import quote_value

_DAY_OF_MONTH = "day of month"
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), (_DAY_OF_MONTH, 1, 31), ("month", 1, 12), ("day of week", 0, 7))
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_START = datetime(2024, 1, 1, tzinfo=UTC)
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LAST_DAY = "L"
_PART = re.compile(r"(\*|(?P<low>\w+)(-(?P<high>\w+))?)(/(?P<step>\d+))?\Z", re.ASCII)


def expand_nickname(text: str) -> str:
    """Return the five fields of a cron expression that may be a nickname.

    >>> expand_nickname("@daily"), expand_nickname("0 2 L * *")
    ('0 0 * * *', '0 2 L * *')
    """
    return _NICKNAMES.get(text.strip(), text)


def validate_cron(text: object) -> None:
    """Raise if a text is not a cron expression.

    >>> validate_cron("*/15 8-18 * * mon-fri"), validate_cron("@daily"), validate_cron("0 2 15,L * *")
    (None, None, None)
    """
    fields = expand_nickname(text).split() if isinstance(text, str) else []
    if isinstance(text, str) and text.startswith("@") and len(fields) == 1:
        what = f"{quote_value(text)} is not a cron text" + did_you_mean(text, _NICKNAMES)
        raise Mistake("DECLARE_CRON", what, fix=f"use one of {', '.join(_NICKNAMES)}, or five fields")
    if len(fields) != len(_FIELDS):
        fix = 'write five fields: minute, hour, day of month, month, day of week; "0 2 * * *" is every day at 2:00'
        raise Mistake("DECLARE_CRON", f"{quote_value(text)} is not a cron text", fix=fix)
    for field, (name, low, high) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if not _is_valid_part(part, name, low, high):
                what = f"{quote_value(field)} in {quote_value(text)} is not a {name}"
                last = ", L for the last day" if name == _DAY_OF_MONTH else ""
                fix = f"use {low} to {high}{last}, *, lists, ranges a-b, or steps */n"
                raise Mistake("DECLARE_CRON", what, fix=fix)
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
        return next(CronSim(expand_nickname(text), _START), None) is not None
    except CronSimError:
        return False


def _is_valid_part(part: str, name: str, low: int, high: int) -> bool:
    if name == _DAY_OF_MONTH and part.upper() == _LAST_DAY:
        return True
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
