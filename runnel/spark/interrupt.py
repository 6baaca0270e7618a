"""Handle Ctrl-C while Spark works: cancel its jobs, keep the connections usable, and raise KeyboardInterrupt.

PySpark's own handler calls Java on the connection that it interrupted (tried: it leads to a Py4JError and stack traces
instead of a KeyboardInterrupt), and py4j, interrupted in a call, closes the connections of all other threads as well.
Here another thread with its own connection cancels the jobs; that ends the call, and then KeyboardInterrupt is raised.
"""

import logging
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from runnel.thread_interrupt import defer_interrupts

if TYPE_CHECKING:
    from pyspark import SparkContext

_CANCEL_TIMEOUT_SECONDS = 5.0
Handler = Callable[[int, FrameType | None], object] | int | None


def shield_calls(context: "SparkContext") -> None:
    """Protect calls of Java from interruption of their thread: a call ends by itself once its job is cancelled."""
    client = context._gateway._gateway_client  # type: ignore[union-attr]
    send_command = client.send_command

    def send_uninterrupted(*arguments: Any, **options: Any) -> Any:
        with defer_interrupts():
            return send_command(*arguments, **options)

    client.send_command = send_uninterrupted


def current_handler() -> Handler:
    """Return the current handler of Ctrl-C, which PySpark is about to replace."""
    return signal.getsignal(signal.SIGINT)


def install_handler(context: "SparkContext", previous_handler: Handler) -> None:
    """Install the handler of Ctrl-C; if the program had its own handler, restore that one instead."""
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may set handlers, and PySpark set none
    _silence_py4j()
    if previous_handler is not signal.default_int_handler:
        signal.signal(signal.SIGINT, previous_handler)
        return

    calls = _MainThreadCalls(context)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        calls.cancel_jobs()
        if not calls.defer_interrupt():
            raise KeyboardInterrupt

    interrupt.__module__ = __name__
    signal.signal(signal.SIGINT, interrupt)


class _MainThreadCalls:
    """Track the main thread's calls of Java: an interrupt waits until the current call ends."""

    def __init__(self, context: "SparkContext") -> None:
        self._context = context
        self._depth = 0
        self._pending_interrupt: threading.Timer | None = None
        client = context._gateway._gateway_client  # type: ignore[union-attr]
        self._send_command = client.send_command
        client.send_command = self._call

    def _call(self, *arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return self._send_command(*arguments, **options)
        self._depth += 1
        try:
            return self._send_command(*arguments, **options)
        finally:
            self._depth -= 1
            if self._pending_interrupt and not self._depth:
                self._pending_interrupt.cancel()
                self._pending_interrupt = None
                raise KeyboardInterrupt

    def cancel_jobs(self) -> None:
        """Cancel all jobs from another thread, and wait for it: a late cancellation could hit later jobs."""
        cancel_thread = threading.Thread(target=self._cancel_all_jobs, name="runnel-cancel", daemon=True)
        cancel_thread.start()
        cancel_thread.join(_CANCEL_TIMEOUT_SECONDS)

    def _cancel_all_jobs(self) -> None:
        with suppress(Exception):  # the JVM may be ending; there is nothing left to cancel then
            self._context.cancelAllJobs()

    def defer_interrupt(self) -> bool:
        """Return whether a call is in progress and will be interrupted when it ends; a second Ctrl-C does not wait."""
        if not self._depth or self._pending_interrupt:
            return False
        # A call that is not a job, such as waiting for a stream, is not cancelled: interrupt it after a timeout.
        main_thread_id = threading.main_thread().ident or 0
        self._pending_interrupt = threading.Timer(
            _CANCEL_TIMEOUT_SECONDS, signal.pthread_kill, (main_thread_id, signal.SIGINT)
        )
        self._pending_interrupt.daemon = True
        self._pending_interrupt.start()
        return True


def restore_handler() -> None:
    """Restore Python's own handler of Ctrl-C."""
    if threading.current_thread() is threading.main_thread():
        handler = current_handler()
        if getattr(handler, "__module__", None) in (__name__, "pyspark.core.context"):
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _silence_py4j() -> None:
    """Suppress py4j's stack traces of interrupted calls; their callers get the exception anyway."""
    root = logging.getLogger()
    if _is_not_py4j not in root.filters:
        root.addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname
