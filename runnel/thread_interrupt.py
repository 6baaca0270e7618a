"""End the work of another thread: raise an exception in it, again and again, until it has ended.

Python delivers such an exception when the thread next runs Python code: a loop ends at once, a call that waits in C
(`time.sleep`, a socket) only when it returns. Whoever can't wait for that abandons the thread; the exception waits for
it, and the process is to end soon, because nothing else can end the thread. Imports nothing.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_current = threading.local()
_guard = threading.Lock()
_abandoned: list[threading.Thread] = []


class Interrupted(BaseException):
    """The work of this thread is to end. No Exception, so that `except Exception` in a task does not swallow it."""


class Interruption:
    """How to interrupt one thread while it does one piece of work."""

    def __init__(self) -> None:
        self._thread_id = threading.get_ident()
        self._gate = threading.RLock()  # held by the thread while it must not be interrupted
        self._is_over = False

    def interrupt(self) -> None:
        """Raise `Interrupted` in the thread, unless it is in a call that must not be torn: then the next time."""
        if self._gate.acquire(blocking=False):
            try:
                if not self._is_over:
                    _set_async_exception(self._thread_id, Interrupted)
            finally:
                self._gate.release()

    def close(self) -> None:
        """Let the thread, which calls this, not be interrupted any more; what was raised and not delivered is void."""
        while not self._is_over:
            try:
                with self._gate:
                    self._is_over = True
                    _set_async_exception(self._thread_id, None)
            except Interrupted:
                continue


@contextmanager
def allow_interrupts() -> Iterator[Interruption]:
    """Let the current thread be interrupted for as long as the block runs."""
    interruption = _current.interruption = Interruption()
    try:
        yield interruption
    finally:
        interruption.close()
        _current.interruption = None


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Put off an interruption of the current thread until the block has ended: half of it would do harm."""
    interruption: Interruption | None = getattr(_current, "interruption", None)
    if interruption is None:
        yield
        return
    with interruption._gate:
        yield


def abandon_thread(thread: threading.Thread) -> None:
    """Remember that nobody waits for a thread any more, although it has not ended."""
    with _guard:
        _abandoned.append(thread)


def list_abandoned_threads() -> list[str]:
    """Return the names of abandoned threads of this process that have not ended."""
    with _guard:
        return [thread.name for thread in _abandoned if thread.is_alive()]


def _set_async_exception(thread_id: int, kind: type[BaseException] | None) -> None:
    """Let a thread raise an exception when it next runs Python code, or none after all."""
    import ctypes

    set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
    set_exception(ctypes.c_ulong(thread_id), ctypes.py_object(kind) if kind is not None else None)
