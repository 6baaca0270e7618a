"""Interrupt the work of another thread: raise an exception in it repeatedly, until the work has ended.

Python delivers such an exception when the thread next runs Python code: a loop ends at once, a call that waits in C
(`time.sleep`, a socket) only when it returns. A caller that can't wait for that abandons the thread: the exception
stays pending, and the process should end soon, because nothing else can end the thread. Imports nothing.

A thread in the middle of an import is left alone until the import has ended: half a module would stay behind, and some
compiled modules abort the process when an exception meets them there.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_current = threading.local()
_guard = threading.Lock()
_abandoned: list[threading.Thread] = []


class Interrupted(BaseException):
    """The work of this thread must end. A BaseException, so that `except Exception` in a task does not swallow it."""


class Interruption:
    """A handle to interrupt one thread while it does one piece of work."""

    def __init__(self) -> None:
        self._thread_id = threading.get_ident()
        self._gate = threading.RLock()  # held by the thread while it must not be interrupted
        self._is_over = False

    def interrupt(self) -> None:
        """Raise `Interrupted` in the thread, unless it imports or defers interrupts: then call this again later."""
        if self._gate.acquire(blocking=False):
            try:
                if not self._is_over and not _is_importing(self._thread_id):
                    _set_async_exception(self._thread_id, Interrupted)
            finally:
                self._gate.release()

    def close(self) -> None:
        """Stop interrupts of the calling thread, and discard one that was raised but not delivered yet."""
        while not self._is_over:
            try:
                with self._gate:
                    self._is_over = True
                    _set_async_exception(self._thread_id, None)
            except Interrupted:
                continue


@contextmanager
def allow_interrupts() -> Iterator[Interruption]:
    """Allow interrupting the current thread while the block runs."""
    interruption = _current.interruption = Interruption()
    try:
        yield interruption
    finally:
        interruption.close()
        _current.interruption = None


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer interrupts of the current thread until the block has ended, because the block must not run partially."""
    interruption: Interruption | None = getattr(_current, "interruption", None)
    if interruption is None:
        yield
        return
    with interruption._gate:
        yield


def abandon_thread(thread: threading.Thread) -> None:
    """Record that nobody waits for a thread any more, although it still runs."""
    with _guard:
        _abandoned.append(thread)


def list_abandoned_threads() -> list[str]:
    """Return the names of abandoned threads of this process that still run."""
    with _guard:
        return [thread.name for thread in _abandoned if thread.is_alive()]


def _is_importing(thread_id: int) -> bool:
    frame = sys._current_frames().get(thread_id)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _set_async_exception(thread_id: int, kind: type[BaseException] | None) -> None:
    """Make a thread raise an exception when it next runs Python code; None withdraws a pending one."""
    import ctypes

    set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
    set_exception(ctypes.c_ulong(thread_id), ctypes.py_object(kind) if kind is not None else None)
