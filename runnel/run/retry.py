"""Try again what may pass by itself, a bounded number of times; what can't is told at once."""

import threading
from collections.abc import Callable
from typing import TypeVar

from runnel.errors import Cancelled
from runnel.phase_timer import phase
from runnel.run.errors.task_errors import is_transient

T = TypeVar("T")
LONGEST_PAUSE_SECONDS = 30.0


def attempt(
    work: Callable[[], T], retries: int, cancelled: threading.Event, again: Callable[[int, float, BaseException], None]
) -> T:
    """Return what `work` returns, tried up to `retries` times more after errors of the transient class.

    `again` is told (attempt, pause in seconds, error) before each pause.
    """
    for number in range(1, retries + 1):
        try:
            return work()
        except Exception as error:
            if cancelled.is_set() or not is_transient(error):
                raise
            pause = min(2.0 ** (number - 1), LONGEST_PAUSE_SECONDS)
            again(number, pause, error)
            with phase("pause"):
                is_over = cancelled.wait(pause)
            if is_over:
                raise Cancelled from error
    return work()
