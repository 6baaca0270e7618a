"""Ctrl-C while Spark works: cancel its jobs, keep the connection sound, and raise KeyboardInterrupt.

PySpark's own handler calls Java on the very connection that it interrupted (tried: a Py4JError and stack traces come
out instead of a KeyboardInterrupt). Here another thread, with a connection of its own, cancels.
"""

import logging
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

_PATIENCE_SECONDS = 5.0
Handler = Callable[[int, FrameType | None], object] | int | None


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

    def cancel() -> None:
        with suppress(Exception):  # the JVM may be ending; there is nothing left to cancel then
            context.cancelAllJobs()

    def interrupt(number: int, frame: FrameType | None) -> None:
        cancelling = threading.Thread(target=cancel, name="runnel-cancel", daemon=True)
        cancelling.start()
        cancelling.join(_PATIENCE_SECONDS)  # else it could cancel what is asked for after the interrupt
        raise KeyboardInterrupt

    interrupt.__module__ = __name__
    signal.signal(signal.SIGINT, interrupt)


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
