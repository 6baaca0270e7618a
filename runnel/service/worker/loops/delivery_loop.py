"""Deliver commits to sinks as soon as they are published."""

from typing import TYPE_CHECKING

from runnel.project.execution.deliver_sinks import deliver_pending
from runnel.service.worker.loops.loop import LONGEST_SECONDS, Loop

if TYPE_CHECKING:
    from runnel.service.worker.loops.loop_context import LoopContext

_PAUSE_SECONDS = 0.5


class DeliveryLoop(Loop):
    """Delivers to all sinks of a branch in a loop."""

    kind = "group of sinks"

    def __init__(self, context: "LoopContext") -> None:
        super().__init__("sinks", context)
        self._reported_problems: dict[str, str] = {}

    def run_loop(self) -> None:
        """Deliver pending commits in a loop; a sink that fails is reported and tried again."""
        pause = _PAUSE_SECONDS
        while not self.stop.is_set():
            deliveries = deliver_pending(self.context.lake, self.context.flow, self.context.branch)
            for delivery in deliveries:
                problem = str(delivery.error) if delivery.error is not None else ""
                if problem != self._reported_problems.get(delivery.sink, ""):
                    self.report(
                        f"{delivery.sink}: {problem}" if problem else f"{delivery.sink} accepts deliveries again"
                    )
                self._reported_problems[delivery.sink] = problem
            self.mark_healthy()
            has_failed = any(delivery.error is not None for delivery in deliveries)
            pause = min(2 * pause, LONGEST_SECONDS) if has_failed else _PAUSE_SECONDS
            self.stop.wait(pause)

    def record_state(self, state: str, problem: str | None) -> None:
        """Record nothing: `runnel sinks` shows the state of each sink."""
