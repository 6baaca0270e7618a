"""Hand on to sinks what was published, as soon as it is."""

import threading
from typing import TYPE_CHECKING

from runnel.client.delivering import deliver_now
from runnel.client.keep.part import Part, Tell

if TYPE_CHECKING:
    from runnel.client.lake import Lake

_PAUSE_SECONDS = 0.5


class Delivery(Part):
    """The deliveries to all sinks of a project."""

    def __init__(self, lake: "Lake", stop: threading.Event, tell: Tell) -> None:
        super().__init__("sinks", stop, tell)
        self._lake = lake
        self._told: dict[str, str] = {}

    def go(self) -> None:
        """Deliver what sinks lack, again and again; one that fails says so itself, and is tried again."""
        while not self.stop.is_set():
            for sent in deliver_now(self._lake, None, None):
                problem = str(sent.error) if sent.error is not None else ""
                if problem != self._told.get(sent.sink, ""):
                    self.tell(f"{sent.sink}: {problem}" if problem else f"{sent.sink} is delivered to again")
                self._told[sent.sink] = problem
            self.well()
            self.stop.wait(_PAUSE_SECONDS)

    def troubled(self, state: str, problem: str | None) -> None:
        """`runnel sinks` tells how each is."""
