"""Days whose slices are asked for, although nothing changed: a backfill's range, its chunks, what it means for a table.

Pure: text and values in, values out.
"""

import datetime as dt
from dataclasses import dataclass

from runnel.declare.options.duration import seconds_of
from runnel.errors import Mistake
from runnel.names import shown
from runnel.plan.slices import Key

_DAY_SECONDS = 86_400
_CHUNK = "write a number of days: 7d, 30 days"


@dataclass(frozen=True)
class Days:
    """Days from `first` to `last`, both included. With the start of a backfill go tasks without slices by date."""

    first: dt.date
    last: dt.date
    is_start: bool = True

    def __str__(self) -> str:
        """Return the days as people read them."""
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"

    @property
    def dates(self) -> tuple[dt.date, ...]:
        """Return each day."""
        return tuple(self.first + dt.timedelta(days=at) for at in range((self.last - self.first).days + 1))

    def chunks(self, size: int | None) -> "tuple[Days, ...]":
        """Return the days in parts of so many; all as one by default.

        >>> [str(days) for days in days_of("2026-01-01", "2026-01-05").chunks(3)]
        ['2026-01-01 to 2026-01-03', '2026-01-04 to 2026-01-05']
        """
        if size is None:
            return (self,)
        starts = self.dates[::size]
        ends = [min(self.last.toordinal(), start.toordinal() + size - 1) for start in starts]
        return tuple(
            Days(start, dt.date.fromordinal(end), self.is_start and start == self.first)
            for start, end in zip(starts, ends, strict=True)
        )


@dataclass(frozen=True)
class Asked:
    """What a step computes because it was asked for; `column` is the date that names slices, None without one."""

    days: Days
    column: str | None = None


@dataclass(frozen=True)
class Dated:
    """The slices of some days that a table has: its one column of type date, how many there are, and their keys.

    None is a number that is not known, or keys that are too many to list.
    """

    column: str
    number: int | None = None
    keys: tuple[Key, ...] | None = None


def days_of(first: str | dt.date, last: str | dt.date) -> Days:
    """Return the days between two, both included.

    >>> days_of("2026-01-01", "2026-01-07")
    Days(first=datetime.date(2026, 1, 1), last=datetime.date(2026, 1, 7), is_start=True)
    """
    found = Days(_date(first, "--from"), _date(last, "--to"))
    if found.first > found.last:
        what = f"--from {found.first} is after --to {found.last}"
        raise Mistake("BACKFILL_ORDER", what, fix="both days are included; for one day give it twice")
    return found


def chunk_of(given: str | int | None) -> int | None:
    """Return how many days a chunk has.

    >>> chunk_of("7d"), chunk_of("30 days"), chunk_of(None)
    (7, 30, None)
    """
    if given is None:
        return None
    if isinstance(given, int):
        seconds = given * _DAY_SECONDS
    else:
        try:
            seconds = seconds_of(given)
        except Mistake as error:
            raise Mistake("BACKFILL_CHUNK", f"{shown(given)} is not a number of days", fix=_CHUNK) from error
    if seconds <= 0 or seconds % _DAY_SECONDS:
        raise Mistake("BACKFILL_CHUNK", f"{shown(given)} is not a number of days", fix=_CHUNK)
    return seconds // _DAY_SECONDS


def _date(given: str | dt.date, option: str) -> dt.date:
    if isinstance(given, dt.date):
        return given.date() if isinstance(given, dt.datetime) else given
    try:
        return dt.datetime.strptime(given.strip(), "%Y-%m-%d").date()
    except ValueError as error:
        what = f"{option} {shown(given)} is not a date"
        raise Mistake("BACKFILL_DATE", what, fix="write it as 2026-01-31") from error
