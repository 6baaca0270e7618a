"""Deliver to sinks in work units, as executors do, without Spark."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from runnel.lake.scan import scan_units
from runnel.lake.work_runner import ReportUnits
from runnel.project.execution import deliver_sinks
from tests.lake.pickling_runner import PicklingRunner

How = Literal["once", "twice, the first counts", "twice, the last counts", "again after an error"]
_runners: list[PicklingRunner] = []


class AttemptRunner(PicklingRunner):
    """Works on every unit and bucket twice, or again after an error that is not for users: Spark may do both."""

    def __init__(self, how: How) -> None:
        super().__init__()
        self._how = how
        self.texts: list[str] = []  # what a log would show of the work and its units

    def run(
        self, work: Callable[[Any], Any], units: Sequence[Any], report_units: ReportUnits | None = None
    ) -> list[Any]:
        self.texts.append(repr((work, units)))
        return super().run(_Attempts(work, self._how), units, report_units)

    def run_shuffled(self, split: Any, units: Sequence[Any], merge: Any, bucket_count: int, *rest: Any) -> list[Any]:
        self.texts.append(repr((split, units, merge)))
        return super().run_shuffled(split, units, _Attempts(merge, self._how), bucket_count, *rest)


@dataclass(frozen=True)
class _Attempts:
    work: Callable[..., Any]
    how: How

    def __call__(self, *arguments: Any) -> Any:
        words = [list(word) if isinstance(word, Iterator) else word for word in arguments]
        if self.how == "again after an error":
            try:
                return self._work(words)
            except OSError:
                return self._work(words)
        results = [self._work(words) for _ in range(1 if self.how == "once" else 2)]
        return results[0 if self.how == "twice, the first counts" else -1]

    def _work(self, words: list[Any]) -> Any:
        return self.work(*(iter(word) if isinstance(word, list) else word for word in words))


@contextmanager
def delivering_in_units(runner: PicklingRunner | None = None) -> Iterator[PicklingRunner]:
    """Let all deliveries of this process be made by a runner, while the block runs."""
    previous, chosen = deliver_sinks.build_runner_choice, runner or PicklingRunner()
    least_bytes, scan_units.LEAST_UNIT_BYTES = scan_units.LEAST_UNIT_BYTES, 1  # small files are several units, too
    deliver_sinks.build_runner_choice = lambda _: chosen  # type: ignore[assignment]
    _runners.append(chosen)
    try:
        yield chosen
    finally:
        deliver_sinks.build_runner_choice = previous
        scan_units.LEAST_UNIT_BYTES = least_bytes
        _runners.pop()


def is_delivering_in_units() -> bool:
    return bool(_runners)
