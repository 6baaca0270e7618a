"""One part of what is kept going: a loop in a thread, started again with a growing pause when it fails."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from runnel.errors import RunnelError, Unreachable, no_room

SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
WAITING_SECONDS = 10.0  # at most between two looks at a system that does not answer
Tell = Callable[[str], None]
Note = Callable[[str, str | None], None]  # of a part: what is wrong, None where nothing is
LOG = logging.getLogger("runnel.up")


class Part(ABC):
    """A loop that goes on until it is told to stop. `problem` is what it waits for or stumbled over, if anything."""

    kind = ""  # how people call it, where they count it

    def __init__(self, name: str, stop: threading.Event, tell: Tell) -> None:
        self.name = name
        self.stop = stop
        self.tell = tell
        self.problem: str | None = None
        self._pause = SHORTEST_SECONDS
        self._thread = threading.Thread(target=self._keep, name=f"runnel {name}", daemon=True)

    def start(self) -> None:
        """Start its thread."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait for its end, and tell whether it came."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @abstractmethod
    def go(self) -> None:
        """Do its work until told to stop. Raises where it can't go on."""

    @abstractmethod
    def troubled(self, state: str, problem: str | None) -> None:
        """Write down that it is `waiting`, has `failed`, or is well again (`running`), for whoever asks."""

    def well(self) -> None:
        """Note that it does what it should."""
        if self.problem is not None:
            self.problem = None
            self.tell(f"{self.name} goes on")
            self.troubled("running", None)
        self._pause = SHORTEST_SECONDS

    def _keep(self) -> None:
        while not self.stop.is_set():
            try:
                self.go()
            except RunnelError as error:
                self._stumbled(error)
            except Exception as error:  # a defect must not end what else goes on
                LOG.error("%s met what nobody told", self.name, exc_info=error)
                other = RunnelError("UP_PART_FAILED", f"{self.name}: {type(error).__name__}: {error}")
                self._stumbled(no_room(error) or other)

    def _stumbled(self, error: RunnelError) -> None:
        LOG.error("%s stumbled", self.name, exc_info=error)
        if self.stop.is_set():
            return
        state = "waiting" if isinstance(error, Unreachable) else "failed"
        if self.problem != error.what:
            self.problem = error.what
            self.tell(f"{self.name} {'waits' if state == 'waiting' else 'failed'}: {error}")
        with suppress(Exception):  # the database may be what is wrong; the loop goes on in any case
            self.troubled(state, str(error))
        self.stop.wait(self._pause)
        self._pause = min(2 * self._pause, WAITING_SECONDS if state == "waiting" else LONGEST_SECONDS)


def unnoted(part: str, problem: str | None) -> None:
    """Note nothing."""
