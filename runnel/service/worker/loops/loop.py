"""The base class of continuous loops: a thread that is restarted with a growing pause when it fails."""

import logging
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING

from runnel.errors import RunnelError, Unreachable, find_disk_full
from runnel.model.secret_mask import SecretMask

if TYPE_CHECKING:
    from runnel.service.worker.loops.loop_context import LoopContext

SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
WAITING_SECONDS = 10.0  # maximum pause between two attempts to reach a system that does not answer
LOG = logging.getLogger("runnel.up")


class Loop(ABC):
    """A loop that runs until it is told to stop. `problem` is the last failure, or what it waits for, if anything."""

    kind = ""  # the noun by which summaries count it

    def __init__(self, name: str, context: "LoopContext") -> None:
        self.name = name
        self.context = context
        self.stop = context.stop
        self.report = context.report
        self.problem: str | None = None
        self._retry_seconds = SHORTEST_SECONDS
        self._thread = threading.Thread(target=self._run_until_stopped, name=f"runnel {name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait for the thread, and return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @abstractmethod
    def run_loop(self) -> None:
        """Work until told to stop. Raise if that is impossible."""

    @abstractmethod
    def record_state(self, state: str, problem: str | None) -> None:
        """Record that the loop is `waiting`, has `failed`, or is `running` again."""

    def mark_healthy(self) -> None:
        """Clear the problem and reset the retry pause after successful work."""
        if self.problem is not None:
            self.problem = None
            self.report(f"{self.name} continues")
            self.record_state("running", None)
        self._retry_seconds = SHORTEST_SECONDS

    def _run_until_stopped(self) -> None:
        while not self.stop.is_set():
            try:
                self.run_loop()
            except RunnelError as error:
                self._handle_failure(error)
            except Exception as error:  # a bug must not end the other loops
                LOG.error("%s failed unexpectedly", self.name, exc_info=error)
                wrapped_error = RunnelError("UP_PART_FAILED", f"{self.name}: {type(error).__name__}: {error}")
                self._handle_failure(find_disk_full(error) or wrapped_error)

    def _handle_failure(self, error: RunnelError) -> None:
        SecretMask(self.context.lake.settings.secrets).hide_in_error(error)
        LOG.error("%s failed", self.name, exc_info=error)
        if self.stop.is_set():
            return
        state = "waiting" if isinstance(error, Unreachable) else "failed"
        if self.problem != error.what:
            self.problem = error.what
            self.report(f"{self.name} {'waits' if state == 'waiting' else 'failed'}: {error}")
        with suppress(Exception):  # the database may be the cause; the loop continues in any case
            self.record_state(state, str(error))
        self.stop.wait(self._retry_seconds)
        self._retry_seconds = min(2 * self._retry_seconds, WAITING_SECONDS if state == "waiting" else LONGEST_SECONDS)
