"""Retries with pauses: which errors are repeated, how often, after which pauses, and what ends them."""

import threading
from collections.abc import Sequence

import pytest

from runnel.backoff import FailedAttempt, call_with_backoff, doubling_pauses, wait_unless_cancelled
from runnel.errors import Cancelled, Mistake, Unreachable

AWAY, WRONG = Unreachable("DATABASE_UNREACHABLE", "away"), Mistake("NAME_TAG", "wrong")
CASES: dict[str, tuple[Sequence[BaseException | int], int | None, BaseException | int, list[float]]] = {
    "succeeds at once": ([7], 3, 7, []),
    "succeeds after two pauses": ([AWAY, AWAY, 7], 3, 7, [1.0, 2.0]),
    "the last attempt fails": ([AWAY, AWAY, 7], 2, AWAY, [1.0]),
    "one attempt only": ([AWAY, 7], 1, AWAY, []),
    "without a limit": ([*[AWAY] * 9, 7], None, 7, [1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]),
    "an error that no retry changes": ([AWAY, WRONG, 7], 3, WRONG, [1.0]),
    "interrupted": ([stop := KeyboardInterrupt(), 7], 3, stop, []),
}


@pytest.mark.parametrize(("outcomes", "attempts", "expected", "pauses"), CASES.values(), ids=CASES)
def test_outcome_and_pauses(
    outcomes: Sequence[BaseException | int], attempts: int | None, expected: BaseException | int, pauses: list[float]
) -> None:
    remaining, waited = list(outcomes), list[float]()

    def operation() -> int:
        outcome = remaining.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def run() -> int:
        return call_with_backoff(
            operation,
            Unreachable,
            doubling_pauses(1.0, 4.0),
            attempts=attempts,
            wait=lambda failed_attempt: waited.append(failed_attempt.pause_seconds),
        )

    if isinstance(expected, BaseException):
        with pytest.raises(type(expected)) as raised:
            run()
        assert raised.value is expected
    else:
        assert run() == expected
    assert waited == pauses


def test_a_pause_ends_when_the_run_is_cancelled() -> None:
    cancelled, attempts = threading.Event(), list[int]()
    cancelled.set()

    def operation() -> None:
        attempts.append(1)
        raise AWAY

    def wait(failed_attempt: FailedAttempt[Unreachable]) -> None:
        wait_unless_cancelled(failed_attempt, cancelled)

    with pytest.raises(Cancelled) as raised:
        call_with_backoff(operation, Unreachable, doubling_pauses(60.0), wait=wait)
    assert raised.value.__cause__ is AWAY and len(attempts) == 1
