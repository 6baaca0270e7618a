"""Measure how much time a run spends in each phase, with one clock per thread.

Code marks its phase by `with measure_phase("write")`; without a clock on the thread that does nothing. Imports nothing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

PASS = "pass"  # one Spark pass that reads, computes, checks rows and writes at once
WAITS = ("queue", "inputs", "slot", "spark", "pause")  # what a run may wait for
PHASES = ("wait", "plan", "read", "compute", "check", "write", "publish")  # as shown to users, in this order


@dataclass(frozen=True)
class PhaseSegment:
    """A stretch of time in one phase; times are seconds since 1970."""

    phase: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Return the duration in seconds."""
        return self.end - self.start


class PhaseClock:
    """Records phases without gaps from its creation on. For one thread; changes of the system clock don't affect it."""

    def __init__(self, phase: str) -> None:
        self.segments: list[PhaseSegment] = []
        self._offset = time.time() - time.monotonic()
        self._phases = [phase]
        self._segment_start = self.now()

    def now(self) -> float:
        """Return the current time in seconds since 1970."""
        return time.monotonic() + self._offset

    @contextmanager
    def enter_phase(self, name: str) -> Iterator[None]:
        """Switch to a phase while the block runs, then back."""
        self._close_segment()
        self._phases.append(name)
        try:
            yield
        finally:
            self._close_segment()
            self._phases.pop()

    def stop(self) -> tuple[PhaseSegment, ...]:
        """Return all segments up to now."""
        self._close_segment()
        return tuple(self.segments)

    def _close_segment(self) -> None:
        now, phase = self.now(), self._phases[-1]
        last = self.segments[-1] if self.segments else None
        if last is not None and last.phase == phase and phase != PASS:
            self.segments[-1] = PhaseSegment(phase, last.start, now)
        else:
            self.segments.append(PhaseSegment(phase, self._segment_start, now))
        self._segment_start = now


_CLOCK: ContextVar[PhaseClock | None] = ContextVar("runnel_clock", default=None)


@contextmanager
def record_phases(phase: str) -> Iterator[PhaseClock]:
    """Record the phases of this thread while the block runs, starting in `phase`."""
    clock = PhaseClock(phase)
    token = _CLOCK.set(clock)
    try:
        yield clock
    finally:
        _CLOCK.reset(token)


@contextmanager
def measure_phase(name: str) -> Iterator[None]:
    """Count the time of a block towards a phase, if this thread has a clock."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    with clock.enter_phase(name):
        yield
