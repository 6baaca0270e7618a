"""Ctrl-C while Spark works: cancel its jobs, keep the connections sound, and raise KeyboardInterrupt.

PySpark's own handler calls Java on the very connection that it interrupted (tried: a Py4JError and stack traces come
out instead of a KeyboardInterrupt), and py4j, interrupted in a call, closes the connections of all other threads as
well. Here another thread, with a connection of its own, cancels; the call ends by that, and then it is interrupted.
"""

import logging
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from runnel.thread_interrupt import uninterrupted

if TYPE_CHECKING:
    from pyspark import SparkContext

_PATIENCE_SECONDS = 5.0
Handler = Callable[[int, FrameType | None], object] | int | None


def shield_calls(context: "SparkContext") -> None:
    """Let no call of Java be torn by an interruption of its thread: it ends by itself once its job is cancelled."""
    client = context._gateway._gateway_client  # type: ignore[union-attr]
    send = client.send_command

    def send_whole(*words: Any, **options: Any) -> Any:
        with uninterrupted():
            return send(*words, **options)

    client.send_command = send_whole


def current() -> Handler:
    """Return who handles Ctrl-C now; PySpark is about to replace it."""
    return signal.getsignal(signal.SIGINT)


def take_over(context: "SparkContext", before: Handler) -> None:
    """Handle Ctrl-C from now on, unless the program had a handler of its own, which is put back."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python lets only the main thread choose, and PySpark did not
    _hush()
    if before is not signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
        return

    calls = _Calls(context)

    def interrupt(number: int, frame: FrameType | None) -> None:
        calls.cancel()
        if not calls.put_off():
            raise KeyboardInterrupt

    interrupt.__module__ = __name__
    signal.signal(signal.SIGINT, interrupt)


class _Calls:
    """The main thread's calls of Java: an interrupt waits for the end of the one that is under way."""

    def __init__(self, context: "SparkContext") -> None:
        self._context = context
        self._depth = 0
        self._late: threading.Timer | None = None
        client = context._gateway._gateway_client  # type: ignore[union-attr]
        self._send = client.send_command
        client.send_command = self._call

    def _call(self, *said: Any, **how: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return self._send(*said, **how)
        self._depth += 1
        try:
            return self._send(*said, **how)
        finally:
            self._depth -= 1
            if self._late and not self._depth:
                self._late.cancel()
                self._late = None
                raise KeyboardInterrupt

    def cancel(self) -> None:
        """Cancel all jobs, from another thread, and wait until that is done: later it could hit those that follow."""
        cancelling = threading.Thread(target=self._cancel, name="runnel-cancel", daemon=True)
        cancelling.start()
        cancelling.join(_PATIENCE_SECONDS)

    def _cancel(self) -> None:
        with suppress(Exception):  # the JVM may be ending; there is nothing left to cancel then
            self._context.cancelAllJobs()

    def put_off(self) -> bool:
        """Tell whether a call is under way that will be interrupted when it ends; a second Ctrl-C does not wait."""
        if not self._depth or self._late:
            return False
        # What is not a job, such as waiting for a stream, goes on after the cancelling: interrupt it all the same.
        main = threading.main_thread().ident or 0
        self._late = threading.Timer(_PATIENCE_SECONDS, signal.pthread_kill, (main, signal.SIGINT))
        self._late.daemon = True
        self._late.start()
        return True


def give_back() -> None:
    """Let Ctrl-C be Python's again."""
    if threading.current_thread() is threading.main_thread():
        handler = current()
        if getattr(handler, "__module__", None) in (__name__, "pyspark.core.context"):
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _hush() -> None:
    """Keep py4j from printing stack traces of calls that were interrupted; their callers learn of it anyway."""
    root = logging.getLogger()
    if _is_not_py4j not in root.filters:
        root.addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname
