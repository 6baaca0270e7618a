"""Retry transient errors a bounded number of times; raise all others at once."""

import threading
from collections.abc import Callable
from typing import TypeVar

from runnel.backoff import FailedAttempt, call_with_backoff, doubling_pauses, wait_unless_cancelled
from runnel.phase_timer import measure_phase
from runnel.run.errors.task_errors import is_caused_by, is_transient

T = TypeVar("T")
_LONGEST_PAUSE_SECONDS = 30.0


def retry_transient(
    operation: Callable[[], T],
    retries: int,
    cancelled: threading.Event,
    report_retry: Callable[[FailedAttempt[Exception]], None],
    *,
    retry_on: tuple[str, ...] = (),
) -> T:
    """Return what `operation` returns; retry it up to `retries` times after transient errors.

    `retry_on` names exceptions of the user's code that count as transient. Calls `report_retry` before each pause.
    Raises Cancelled if the run is cancelled during a pause.
    """

    def wait(failed_attempt: FailedAttempt[Exception]) -> None:
        report_retry(failed_attempt)
        with measure_phase("pause"):
            wait_unless_cancelled(failed_attempt, cancelled)

    return call_with_backoff(
        operation,
        Exception,
        doubling_pauses(1.0, _LONGEST_PAUSE_SECONDS),
        is_repeated=lambda error: not cancelled.is_set() and (is_transient(error) or is_caused_by(error, retry_on)),
        attempts=retries + 1,
        wait=wait,
    )


def describe_retry(failed_attempt: FailedAttempt[Exception]) -> str:
    r"""Return the text of the event before a retry.

    >>> describe_retry(FailedAttempt(2, OSError("no route\nto host"), 4.0))
    'attempt 2 failed (no route); retrying in 4 s'
    """
    error = failed_attempt.error
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return f"attempt {failed_attempt.number} failed ({reason}); retrying in {failed_attempt.pause_seconds:.0f} s"
