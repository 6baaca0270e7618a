"""Deliver commits to sinks as soon as they are published."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.project.execution.deliver_sinks import deliver_pending
from runnel.service.worker.loops.loop import LONGEST_SECONDS, SHORTEST_SECONDS, Loop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.run.results.delivery_result import DeliveryResult
    from runnel.service.worker.loops.loop_context import LoopContext

PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class _Pause:
    seconds: float
    until: float


class SinkPauses:
    """How long each failing sink waits until it is tried again: twice as long after each failure in a row.

    A sink that fails delays no other. `clock_seconds` is monotonic.
    """

    def __init__(self, clock_seconds: Callable[[], float] = time.monotonic) -> None:
        self._clock_seconds = clock_seconds
        self._pauses: dict[str, _Pause] = {}

    def list_paused(self) -> frozenset[str]:
        """Return the sinks that wait."""
        now = self._clock_seconds()
        return frozenset(sink for sink, pause in self._pauses.items() if pause.until > now)

    def update(self, paused_sinks: frozenset[str], deliveries: "Iterable[DeliveryResult]") -> None:
        """Note what became of the sinks that were tried: all but `paused_sinks`, with results of some of them."""
        now = self._clock_seconds()
        failed_sinks = {delivery.sink for delivery in deliveries if delivery.error is not None}
        previous = self._pauses
        self._pauses = {sink: pause for sink, pause in previous.items() if sink in paused_sinks}
        for sink in failed_sinks:
            seconds = min(2 * previous[sink].seconds, LONGEST_SECONDS) if sink in previous else SHORTEST_SECONDS
            self._pauses[sink] = _Pause(seconds, now + seconds)


class DeliveryLoop(Loop):
    """Delivers to all sinks of a branch in a loop."""

    kind = "group of sinks"

    def __init__(self, context: "LoopContext") -> None:
        super().__init__("sinks", context)
        self._reported_problems: dict[str, str] = {}
        self._pauses = SinkPauses()

    def run_loop(self) -> None:
        """Deliver pending commits in a loop; a sink that fails is reported and tried again."""
        while not self.stop.is_set():
            paused_sinks = self._pauses.list_paused()
            context = self.context
            deliveries = deliver_pending(context.lake, context.flow, context.branch, paused_sinks)
            for delivery in deliveries:
                problem = str(delivery.error) if delivery.error is not None else ""
                if problem != self._reported_problems.get(delivery.sink, ""):
                    self.report(
                        f"{delivery.sink}: {problem}" if problem else f"{delivery.sink} accepts deliveries again"
                    )
                self._reported_problems[delivery.sink] = problem
            self._pauses.update(paused_sinks, deliveries)
            self.mark_healthy()
            self.stop.wait(PAUSE_SECONDS)

    def record_state(self, state: str, problem: str | None) -> None:
        """Record nothing: `runnel sinks` shows the state of each sink."""
