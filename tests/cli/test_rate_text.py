"""The time left of a long load, with a clock and counts that the test makes up."""

from itertools import pairwise

from runnel.cli.rate_text import RateEstimate

TOTAL = 100_000


def list_remaining(rates: list[int], total: int = TOTAL) -> list[float | None]:
    """Return the remaining time after each second; `rates` are the rows of each second."""
    estimate, done, remaining = RateEstimate(), 0, list[float | None]()
    estimate.update("reading", 0, total, 0.0)
    for second, rows in enumerate(rates, 1):
        done += rows
        remaining.append(estimate.update("reading", done, total, float(second)))
    return remaining


def list_growth(remaining: list[float | None]) -> list[float]:
    """Return by how many seconds the remaining time grew, each time it did."""
    shown_times = [seconds for seconds in remaining if seconds is not None]
    return [after - before for before, after in pairwise(shown_times) if after > before]


def test_a_burst_at_the_start_names_no_time_that_grows_later() -> None:
    remaining = list_remaining([4_000, 0, 0, *[2_000] * 46])
    assert remaining[:2] == [None, None]
    assert list_growth(remaining) == []
    assert remaining[-1] is not None and remaining[-1] < 3


def test_an_uneven_rate_does_not_let_the_time_left_grow() -> None:
    remaining = list_remaining([2_600, 1_400] * 24)
    assert list_growth(remaining) == []


def test_a_rate_that_really_falls_shows_the_longer_time_at_once_and_once() -> None:
    remaining = list_remaining([4_000] * 10 + [1_000] * 50)
    before, after = remaining[9], remaining[-1]
    assert before == 15.0 and after is not None and 8 <= after <= 12
    assert len(list_growth(remaining)) <= 6  # in steps, while the measured rate falls
    assert max(seconds for seconds in remaining if seconds is not None) > 30


def test_nothing_is_named_before_enough_is_done() -> None:
    assert list_remaining([10] * 30) == [None] * 30
    assert list_remaining([10] * 30, total=0) == [None] * 30


def test_another_activity_is_measured_from_scratch() -> None:
    estimate = RateEstimate()
    for second in range(6):
        estimate.update("reading", 5_000 * second, TOTAL, float(second))
    assert estimate.describe("writing", 0, TOTAL, 6.0) == "writing"
    assert estimate.describe("writing", 1_000, TOTAL, 8.0) == "writing 1,000 of 100,000 rows, 500/s"
    assert estimate.describe("writing", 10_000, TOTAL, 26.0) == "writing 10,000 of 100,000 rows, 500/s, 3:00 left"
