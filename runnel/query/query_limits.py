"""End a query that nobody waits for any more: the engine stops computing, and the reason is what is raised."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from runnel.errors import Cancelled, RunnelError

_PAUSE_SECONDS = 0.1


class Bound:
    """Lets a query go on for as long as it takes."""

    def over(self) -> RunnelError | None:
        """Return why the query is to end now, or None while it may go on; asked from other threads too."""
        return None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Say that the engine works for as long as the block runs."""
        yield


class Stoppable(Bound):
    """Lets a query go on until somebody cancels it."""

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled

    def over(self) -> RunnelError | None:
        """Return that it was cancelled, if it was."""
        return Cancelled() if self._cancelled.is_set() else None


class Limited(Bound):
    """Lets an engine work for so many seconds; how long somebody takes to read the answer does not count."""

    def __init__(self, seconds: float, late: RunnelError) -> None:
        self._left = seconds
        self._late = late
        self._since: float | None = None

    def over(self) -> RunnelError | None:
        """Return that it takes too long, if it does."""
        since = self._since
        return self._late if self._left < (0.0 if since is None else time.monotonic() - since) else None

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the time."""
        self._since = begun = time.monotonic()
        try:
            yield
        finally:
            self._left -= time.monotonic() - begun
            self._since = None


@contextmanager
def watched(bound: Bound, interrupt: Callable[[], object]) -> Iterator[None]:
    """Interrupt an engine when its query is over, again and again until the block ends.

    Once is not enough: what comes just before a query begins is lost.
    """
    if type(bound) is Bound:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_PAUSE_SECONDS):
            if bound.over() is not None:
                with suppress(Exception):  # it may be ending by itself
                    interrupt()

    watching = threading.Thread(target=watch, name="runnel query", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        if watching is not threading.current_thread():  # where a forgotten answer happens to be let go of
            watching.join()
