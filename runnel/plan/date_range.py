"""Parse the date range of a backfill and the size of its chunks; hold the days that a step is to compute.

Pure: text and values in, values out.
"""

import datetime as dt
from dataclasses import dataclass

from runnel.declare.options.duration import parse_duration
from runnel.errors import Mistake
from runnel.model.date_range import DateRange
from runnel.names import quote_value

MAX_CHUNKS = 10_000  # each is a run and a commit
_DAY_SECONDS = 86_400
_CHUNK = "write a number of days: 7d, 30 days"


@dataclass(frozen=True)
class RequestedDays:
    """The days that a backfill requests of a step; `column` is the date column of its slices, None without one."""

    days: DateRange
    column: str | None = None


def parse_date_range(first: str | dt.date, last: str | dt.date) -> DateRange:
    """Return the range between two days, both included.

    >>> parse_date_range("2026-01-01", "2026-01-07")
    DateRange(first=datetime.date(2026, 1, 1), last=datetime.date(2026, 1, 7), is_start=True)
    """
    date_range = DateRange(_parse_date(first, "--from"), _parse_date(last, "--to"))
    if date_range.first > date_range.last:
        what = f"--from {date_range.first} is after --to {date_range.last}"
        raise Mistake("BACKFILL_ORDER", what, fix="both days are included; for a single day, pass it twice")
    return date_range


def parse_chunk_days(value: str | int | None) -> int | None:
    """Return the number of days in a chunk.

    >>> parse_chunk_days("7d"), parse_chunk_days("30 days"), parse_chunk_days(None)
    (7, 30, None)
    """
    if value is None:
        return None
    if isinstance(value, int):
        seconds = value * _DAY_SECONDS
    else:
        try:
            seconds = parse_duration(value)
        except Mistake as error:
            raise Mistake("BACKFILL_CHUNK", f"{quote_value(value)} is not a number of days", fix=_CHUNK) from error
    if seconds <= 0 or seconds % _DAY_SECONDS:
        raise Mistake("BACKFILL_CHUNK", f"{quote_value(value)} is not a number of days", fix=_CHUNK)
    return seconds // _DAY_SECONDS


def check_chunk_count(days: DateRange, size: int | None) -> None:
    """Raise if a backfill would have more than MAX_CHUNKS chunks. Builds no chunk.

    >>> check_chunk_count(parse_date_range("0001-01-01", "9999-12-31"), None)
    """
    day_count = (days.last - days.first).days + 1
    chunk_count = 1 if size is None else -(-day_count // size)
    if chunk_count > MAX_CHUNKS:
        what = f"{days} in chunks of {size}d are {chunk_count:,} runs, and a backfill has at most {MAX_CHUNKS:,}"
        smallest = -(-day_count // MAX_CHUNKS)
        raise Mistake("BACKFILL_TOO_MANY_CHUNKS", what, fix=f"give a larger chunk, {smallest}d or more, or fewer days")


def _parse_date(value: str | dt.date, option: str) -> dt.date:
    if isinstance(value, dt.date):
        return value.date() if isinstance(value, dt.datetime) else value
    try:
        return dt.datetime.strptime(value.strip(), "%Y-%m-%d").date()
    except ValueError as error:
        what = f"{option} {quote_value(value)} is not a date"
        raise Mistake("BACKFILL_DATE", what, fix="write it as 2026-01-31") from error
