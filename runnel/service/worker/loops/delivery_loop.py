"""Hand on to sinks what was published, as soon as it is."""

import threading
from typing import TYPE_CHECKING

from runnel.project.execution.deliver_sinks import deliver_on
from runnel.service.worker.loops.loop import LONGEST_SECONDS, Part, Tell

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow

_PAUSE_SECONDS = 0.5


class Delivery(Part):
    """The deliveries to all sinks of a branch."""

    kind = "group of sinks"

    def __init__(self, lake: "Lake", flow: "Flow", branch: str, stop: threading.Event, tell: Tell) -> None:
        super().__init__("sinks", stop, tell)
        self._lake = lake
        self._flow = flow
        self._branch = branch
        self._told: dict[str, str] = {}

    def go(self) -> None:
        """Deliver what sinks lack, again and again; one that fails says so itself, and is tried again."""
        pause = _PAUSE_SECONDS
        while not self.stop.is_set():
            found = deliver_on(self._lake, self._flow, self._branch)
            for sent in found:
                problem = str(sent.error) if sent.error is not None else ""
                if problem != self._told.get(sent.sink, ""):
                    self.tell(f"{sent.sink}: {problem}" if problem else f"{sent.sink} is delivered to again")
                self._told[sent.sink] = problem
            self.well()
            fails = any(sent.error is not None for sent in found)
            pause = min(2 * pause, LONGEST_SECONDS) if fails else _PAUSE_SECONDS
            self.stop.wait(pause)

    def troubled(self, state: str, problem: str | None) -> None:
        """`runnel sinks` tells how each is."""
