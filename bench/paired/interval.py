"""The median of paired ratios with an interval that needs no assumption about how times are spread."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A median, and the bounds between which the true one lies with at least 95 % confidence."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def median_interval(ratios: Sequence[float]) -> Interval:
    """Return the interval by order statistics: each ratio lies below the median with probability one half.

    >>> median_interval([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8])
    Interval(median=1.4, low=1.1, high=1.7)
    """
    ordered, count = sorted(ratios), len(ratios)
    rank = 0
    while 2 * _share_below(rank + 1, count) <= 1 - CONFIDENCE:
        rank += 1
    if rank == 0:
        raise ValueError(f"{count} pairs are too few for an interval; at least 6 are needed")
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[count - rank])


def _share_below(rank: int, count: int) -> float:
    return sum(math.comb(count, number) for number in range(rank)) / 2**count
