"""Stop queries that are cancelled or take too long: the engine is interrupted, and the reason is raised."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from runnel.errors import Cancelled, RunnelError

_POLL_SECONDS = 0.1


class QueryLimit:
    """No limit: a query may take as long as it needs."""

    def stop_error(self) -> RunnelError | None:
        """Return the error with which the query must stop now, or None; called from other threads, too."""
        return None

    @contextmanager
    def measure_work(self) -> Iterator[None]:
        """Count the duration of the block as work of the engine."""
        yield


class CancelLimit(QueryLimit):
    """Stops a query when it is cancelled."""

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled

    def stop_error(self) -> RunnelError | None:
        """Return Cancelled if the query was cancelled."""
        return Cancelled() if self._cancelled.is_set() else None


class TimeLimit(QueryLimit):
    """Stops a query after so many seconds of engine work; the time that the reader takes does not count."""

    def __init__(self, seconds: float, timeout_error: RunnelError) -> None:
        self._remaining_seconds = seconds
        self._timeout_error = timeout_error
        self._working_since: float | None = None

    def stop_error(self) -> RunnelError | None:
        """Return the timeout error if the time is used up."""
        working_since = self._working_since
        return (
            self._timeout_error
            if self._remaining_seconds < (0.0 if working_since is None else time.monotonic() - working_since)
            else None
        )

    @contextmanager
    def measure_work(self) -> Iterator[None]:
        """Count the time."""
        self._working_since = started_at = time.monotonic()
        try:
            yield
        finally:
            self._remaining_seconds -= time.monotonic() - started_at
            self._working_since = None


@contextmanager
def enforce_limit(query_limit: QueryLimit, interrupt: Callable[[], object]) -> Iterator[None]:
    """Interrupt an engine when its query exceeds the limit, repeatedly until the block ends.

    Once is not enough: an interrupt just before a query starts is lost.
    """
    if type(query_limit) is QueryLimit:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL_SECONDS):
            if query_limit.stop_error() is not None:
                with suppress(Exception):  # the query may just be ending by itself
                    interrupt()

    watcher = threading.Thread(target=watch, name="runnel query", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        if watcher is not threading.current_thread():  # the garbage collector may close an abandoned result here
            watcher.join()
