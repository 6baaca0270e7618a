"""The verdict of `make bench-paired`: an interval of the median of paired ratios."""

import pytest

from bench.paired.interval import Interval, median_interval

CASES = {
    "nine pairs leave out one at each end": ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8], Interval(1.4, 1.1, 1.7)),
    "order does not matter": ([1.8, 1.0, 1.7, 1.1, 1.6, 1.2, 1.5, 1.3, 1.4], Interval(1.4, 1.1, 1.7)),
    "six pairs are the fewest": ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], Interval(1.25, 1.0, 1.5)),
}


@pytest.mark.parametrize(("ratios", "expected"), CASES.values(), ids=CASES)
def test_median_interval(ratios: list[float], expected: Interval) -> None:
    assert median_interval(ratios) == expected


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 6"):
        median_interval([1.0] * 5)
