"""Repeat an operation with pauses while its errors may pass; tenacity counts the attempts.

A caller says which errors are repeated, how many attempts there are, how long each pause is, and how it waits: a way
to wait may report the failed attempt, end early, or raise so that there is no further attempt.

tenacity is imported by the first call, not with this module: a run that has nothing to do never needs it.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from runnel.errors import Cancelled

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


@dataclass(frozen=True)
class FailedAttempt(Generic[E]):
    """An attempt that failed and is repeated after a pause."""

    number: int  # from 1 on
    error: E
    pause_seconds: float


def sleep_after(failed_attempt: FailedAttempt[E]) -> None:
    """Wait for the whole pause."""
    time.sleep(failed_attempt.pause_seconds)


def wait_unless_cancelled(failed_attempt: FailedAttempt[E], cancelled: threading.Event) -> None:
    """Wait for the pause; raise Cancelled as soon as `cancelled` is set."""
    if cancelled.wait(failed_attempt.pause_seconds):
        raise Cancelled from failed_attempt.error


def doubling_pauses(first_seconds: float, longest_seconds: float = math.inf) -> Callable[[int, object], float]:
    """Return pauses that double after each attempt, up to the longest.

    >>> pauses = doubling_pauses(0.5, 30.0)
    >>> [pauses(number, None) for number in (1, 2, 3, 2000)]
    [0.5, 1.0, 2.0, 30.0]
    """
    return lambda number, _error: min(first_seconds * 2.0 ** min(number - 1, 100), longest_seconds)


def call_with_backoff(
    operation: Callable[[], T],
    error_type: type[E],
    pauses: Callable[[int, E], float],
    *,
    is_repeated: Callable[[E], bool] = lambda _error: True,
    attempts: int | None = None,
    wait: Callable[[FailedAttempt[E]], None] = sleep_after,
) -> T:
    """Return what `operation` returns; repeat it after each error of a type that `is_repeated` accepts.

    `pauses` returns the seconds to wait after an attempt, by its number from 1 on and its error. Raises the error of
    the last attempt, any other error at once, and what `wait` raises. Without `attempts` their number has no limit.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_never

    def error_of(state: "RetryCallState") -> E:
        error = state.outcome.exception() if state.outcome is not None else None
        assert isinstance(error, error_type)
        return error

    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, error_type) and is_repeated(error)),
        stop=stop_never if attempts is None else stop_after_attempt(attempts),
        wait=lambda state: pauses(state.attempt_number, error_of(state)),
        # Waits itself, as tenacity's `sleep` does not know the error.
        before_sleep=lambda state: wait(FailedAttempt(state.attempt_number, error_of(state), state.upcoming_sleep)),
        sleep=lambda _seconds: None,
        reraise=True,
    )
    return retrying(operation)
