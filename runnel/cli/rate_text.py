"""Describe how fast something goes and how long it will take. Pure: the caller passes in the clock."""

from collections import deque

WINDOW_SECONDS = 15.0  # over which the rate is measured
SAMPLE_SECONDS = 0.2  # between two samples, so that there are few
FIRST_SECONDS, FIRST_SHARE = 3.0, 0.05  # before both, too little is known to name the remaining time
SMOOTHING_SECONDS = 5.0  # in which a shorter time left is taken over
SLOWER = 0.75  # a rate below this share of the one that the shown time is based on has really fallen


class RateEstimate:
    """Measures the recent rate of an activity, and estimates the remaining time.

    The remaining time only grows if the rate really falls: small fluctuations don't change when it will end. A new
    activity, or a count that starts again, is measured from scratch.
    """

    def __init__(self) -> None:
        self._activity = ""
        self._samples = deque[tuple[float, int]]()
        self._started_at = 0.0
        self._ends_at: float | None = None
        self._estimated_at = 0.0

    def describe(self, activity: str, done: int, total: int | None, now: float, noun: str = "rows") -> str:
        """Return the progress of an activity at a time in seconds, with its rate and the remaining time.

        >>> estimate = RateEstimate()
        >>> estimate.describe("reading", 0, 200_000, 0.0), estimate.describe("reading", 500, 200_000, 0.1)
        ('reading', 'reading 500 of 200,000 rows')
        >>> estimate.describe("reading", 50_000, 200_000, 10.0)
        'reading 50,000 of 200,000 rows, 5,000/s, 0:30 left'
        >>> estimate.describe("checking", 0, None, 12.0), estimate.describe("checking", 70, None, 13.0)
        ('checking', 'checking 70 rows, 70/s')
        """
        seconds = self.update(activity, done, total, now)
        if not done:
            return activity
        text = f"{activity} {done:,}{f' of {total:,}' if total and total >= done else ''} {noun}"
        if now - self._started_at < 1:
            return text
        return f"{text}, {self.rate:,.0f}/s" + (f", {format_duration(seconds)} left" if seconds is not None else "")

    def update(self, activity: str, done: int, total: int | None, now: float) -> float | None:
        """Add what is done at a time in seconds, and return the remaining seconds; None if they are unknown so far."""
        self._add_sample(activity, done, now)
        return self._estimate_seconds(total, now)

    @property
    def rate(self) -> float:
        """Return how many were done per second recently."""
        (first_at, first_done), (last_at, last_done) = self._samples[0], self._samples[-1]
        return (last_done - first_done) / (last_at - first_at) if last_at > first_at else 0.0

    def _estimate_seconds(self, total: int | None, now: float) -> float | None:
        done, rate = self._samples[-1][1], self.rate
        if not total or total <= done or not rate:
            return None
        if now - self._started_at < FIRST_SECONDS or done < FIRST_SHARE * total:
            return None
        ends_at, shown_end = now + (total - done) / rate, self._ends_at
        passed_seconds, self._estimated_at = now - self._estimated_at, now
        if shown_end is None or (ends_at - now) * SLOWER > shown_end - now:
            self._ends_at = ends_at
        elif ends_at > shown_end:  # the time left shrinks at half the speed of the clock until it is true again
            self._ends_at = min(ends_at, shown_end + passed_seconds / 2)
        else:
            self._ends_at = shown_end - (shown_end - ends_at) * min(passed_seconds / SMOOTHING_SECONDS, 1.0)
        return self._ends_at - now

    def _add_sample(self, activity: str, done: int, now: float) -> None:
        if activity != self._activity or not self._samples or done < self._samples[-1][1]:
            self._activity, self._started_at, self._ends_at = activity, now, None
            self._samples.clear()
        if len(self._samples) > 1 and now - self._samples[-2][0] < SAMPLE_SECONDS:
            self._samples.pop()
        self._samples.append((now, done))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW_SECONDS:
            self._samples.popleft()


def format_duration(seconds: float) -> str:
    """Return a duration as minutes and seconds, or hours.

    >>> format_duration(30), format_duration(75.4), format_duration(7300)
    ('0:30', '1:15', '2:01:40')
    """
    total_seconds = round(seconds)
    hours, remainder = divmod(total_seconds, 3600)
    minutes, remaining_seconds = divmod(remainder, 60)
    return f"{hours}:{minutes:02}:{remaining_seconds:02}" if hours else f"{minutes}:{remaining_seconds:02}"
