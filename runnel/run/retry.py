"""Retry transient errors a bounded number of times; raise all others at once."""

import threading
from collections.abc import Callable
from typing import TypeVar

from runnel.errors import Cancelled
from runnel.phase_timer import measure_phase
from runnel.run.errors.task_errors import is_transient

T = TypeVar("T")
LONGEST_PAUSE_SECONDS = 30.0


def retry_transient(
    operation: Callable[[], T],
    retries: int,
    cancelled: threading.Event,
    report_retry: Callable[[int, float, BaseException], None],
) -> T:
    """Return what `operation` returns; retry it up to `retries` times after transient errors.

    Calls `report_retry` with (attempt, pause in seconds, error) before each pause.
    """
    for attempt_number in range(1, retries + 1):
        try:
            return operation()
        except Exception as error:
            if cancelled.is_set() or not is_transient(error):
                raise
            pause_seconds = min(2.0 ** (attempt_number - 1), LONGEST_PAUSE_SECONDS)
            report_retry(attempt_number, pause_seconds, error)
            with measure_phase("pause"):
                is_over = cancelled.wait(pause_seconds)
            if is_over:
                raise Cancelled from error
    return operation()
