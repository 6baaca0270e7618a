"""A range of days, and the slices of a table in it."""

import datetime as dt
from dataclasses import dataclass

from runnel.model.slice_key import SliceValue


@dataclass(frozen=True)
class DateRange:
    """The days from `first` to `last`, both included. Tasks without slices by date are computed only if `is_start`."""

    first: dt.date
    last: dt.date
    is_start: bool = True

    def __str__(self) -> str:
        """Return the range as text for people."""
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"

    @property
    def dates(self) -> tuple[dt.date, ...]:
        """Return each day."""
        return tuple(self.first + dt.timedelta(days=offset) for offset in range((self.last - self.first).days + 1))

    def chunks(self, size: int | None) -> "tuple[DateRange, ...]":
        """Return the days in parts of so many; all as one by default.

        >>> [str(days) for days in DateRange(dt.date(2026, 1, 1), dt.date(2026, 1, 5)).chunks(3)]
        ['2026-01-01 to 2026-01-03', '2026-01-04 to 2026-01-05']
        """
        if size is None:
            return (self,)
        starts = self.dates[::size]
        ends = [min(self.last.toordinal(), start.toordinal() + size - 1) for start in starts]
        return tuple(
            DateRange(start, dt.date.fromordinal(end), self.is_start and start == self.first)
            for start, end in zip(starts, ends, strict=True)
        )


@dataclass(frozen=True)
class DateSlices:
    """A table's slices of some days: the only column of type date, their number, and their keys.

    The number is None if it is not known, the keys are None if there are too many to list.
    """

    column: str
    count: int | None = None
    keys: tuple[SliceValue, ...] | None = None
