"""Notify observers of a run, such as OpenLineage and OpenTelemetry. An observer that fails never fails the run."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.declare.settings import Settings
    from runnel.errors import RunnelError
    from runnel.names import TableName
    from runnel.run.metrics.step_timing import StepTiming
    from runnel.run.results.run_result import Event, StepResult
    from runnel.run.run_context import RunContext

LOG = logging.getLogger("runnel.run")


@dataclass(frozen=True)
class RunEnd:
    """The end of a run. `is_replanned`: another commit was faster, so the run is planned again."""

    state: str
    commit: str | None
    steps: "tuple[StepResult, ...]"
    error: "RunnelError | None" = None
    is_replanned: bool = False
    timeline: Mapping[str, float] = field(default_factory=dict)
    timings: "Mapping[TableName, StepTiming]" = field(default_factory=dict)
    ended_at: float | None = None  # seconds since 1970, after publishing


class RunObserver(Protocol):
    """Observe one run. Its methods must return at once."""

    def on_start(self, run_context: "RunContext") -> None:
        """Handle the start of the run."""

    def on_event(self, event: "Event") -> None:
        """Handle an event; called from several threads."""

    def on_end(self, run_end: RunEnd) -> None:
        """Handle the end of the run."""


class RunObservers:
    """Notify all observers of a run; log their errors."""

    def __init__(self, observers: Sequence[RunObserver] = ()) -> None:
        self._observers = observers

    def on_start(self, run_context: "RunContext") -> None:
        """Notify the observers of the start."""
        for observer in self._observers:
            try:
                observer.on_start(run_context)
            except Exception as error:
                LOG.warning("could not report the start of a run", exc_info=error)

    def on_event(self, event: "Event") -> None:
        """Notify the observers of an event."""
        for observer in self._observers:
            try:
                observer.on_event(event)
            except Exception as error:
                LOG.warning("could not report an event of a run", exc_info=error)

    def on_end(self, run_end: RunEnd) -> None:
        """Notify the observers of the end."""
        for observer in self._observers:
            try:
                observer.on_end(run_end)
            except Exception as error:
                LOG.warning("could not report the end of a run", exc_info=error)


def build_observers(settings: "Settings") -> RunObservers:
    """Return the observers that the settings and the environment configure."""
    from runnel.run.openlineage.sender import get_sender

    observers: list[RunObserver] = []
    if (sender := get_sender(settings.openlineage)) is not None:
        from runnel.run.openlineage.run_observer import LineageObserver

        observers.append(LineageObserver(sender, settings.name))
    if tracing.configure(settings.telemetry, settings.name):
        from runnel.run.trace_observer import TraceObserver

        observers.append(TraceObserver())
    return RunObservers(observers)
