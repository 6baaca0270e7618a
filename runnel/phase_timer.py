"""Where time goes: a clock per thread that is always in one phase.

Whoever works says `with phase("write")`; where nobody keeps a clock that costs nothing. Imports nothing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

PASS = "pass"  # one pass of Spark, which reads, computes, checks rows and writes at once
WAITS = ("queue", "inputs", "slot", "spark", "pause")  # what may be waited for
PHASES = ("wait", "plan", "read", "compute", "check", "write", "publish")  # as people see them, in this order


@dataclass(frozen=True)
class Segment:
    """A while in one phase; times are seconds since 1970."""

    phase: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Return how long it was."""
        return self.end - self.start


class Clock:
    """Segments without gaps, from when it is made. Not shared by threads; a jump of the system's clock does no harm."""

    def __init__(self, phase: str) -> None:
        self.segments: list[Segment] = []
        self._offset = time.time() - time.monotonic()
        self._phases = [phase]
        self._since = self.now()

    def now(self) -> float:
        """Return the time."""
        return time.monotonic() + self._offset

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Be in another phase while the block runs."""
        self._turn()
        self._phases.append(name)
        try:
            yield
        finally:
            self._turn()
            self._phases.pop()

    def stop(self) -> tuple[Segment, ...]:
        """Return all segments up to now."""
        self._turn()
        return tuple(self.segments)

    def _turn(self) -> None:
        now, phase = self.now(), self._phases[-1]
        last = self.segments[-1] if self.segments else None
        if last is not None and last.phase == phase and phase != PASS:
            self.segments[-1] = Segment(phase, last.start, now)
        else:
            self.segments.append(Segment(phase, self._since, now))
        self._since = now


_CLOCK: ContextVar[Clock | None] = ContextVar("runnel_clock", default=None)


@contextmanager
def kept(phase: str) -> Iterator[Clock]:
    """Keep a clock for this thread, in a phase to begin with."""
    clock = Clock(phase)
    token = _CLOCK.set(clock)
    try:
        yield clock
    finally:
        _CLOCK.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Let the time of a block go to a phase, if this thread has a clock."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    with clock.phase(name):
        yield


def sums(segments: "tuple[Segment, ...]") -> dict[str, float]:
    """Return the seconds of each phase.

    >>> sums((Segment("plan", 0.0, 1.0), Segment("read", 1.0, 3.5), Segment("plan", 3.5, 4.0)))
    {'plan': 1.5, 'read': 2.5}
    """
    found: dict[str, float] = {}
    for one in segments:
        found[one.phase] = found.get(one.phase, 0.0) + one.seconds
    return found
