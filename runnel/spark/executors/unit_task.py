"""What a task of Spark does with a unit or a bucket: limit this process, work, and return errors for users.

Runs on executors, without a session. Spark would try an error that is raised again; so those for users are returned,
and those of a split travel with the pieces.
"""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from runnel.errors import RunnelError, error_from_json
from runnel.lake.scan.duckdb_connection import limit_resources
from runnel.lake.work_runner import Merge, Split
from runnel.spark.executors.task_limits import ExecutorLimits

_exempt_count = 0  # of the modules that the garbage collector of this process passes over
Unit = TypeVar("Unit")
Result = TypeVar("Result")
ErrorJson = dict[str, str | int | None]


@dataclass(frozen=True)
class UnitOutcome(Generic[Result]):
    """What a task returns for a unit or a bucket: its result, or an error for users as JSON."""

    result: Result | None = None
    error: ErrorJson | None = None


@dataclass(frozen=True)
class UnitTask(Generic[Unit, Result]):
    """Works on one unit."""

    work: Callable[[Unit], Result]
    limits: ExecutorLimits | None

    def __call__(self, unit: Unit) -> UnitOutcome[Result]:
        """Return the outcome of a unit."""
        _apply_limits(self.limits)
        try:
            return UnitOutcome(self.work(unit))
        except RunnelError as error:
            return UnitOutcome(error=error.to_json_with_kind())
        finally:
            _exempt_modules()


@dataclass(frozen=True)
class FailedSplit:
    """Travels instead of a piece, to all buckets, if the split of a unit raised an error for users."""

    unit_number: int
    error: ErrorJson


@dataclass(frozen=True)
class SplitTask(Generic[Unit]):
    """Splits the units of a partition of Spark, which has one, into pieces."""

    split: Split[Unit]
    limits: ExecutorLimits | None
    bucket_count: int

    def __call__(self, unit_number: int, units: Iterable[Unit]) -> Iterator[tuple[int, bytes | FailedSplit]]:
        """Yield the pieces of the unit with their buckets."""
        _apply_limits(self.limits)
        try:
            for unit in units:
                yield from self.split(unit)
        except RunnelError as error:
            failed_split = FailedSplit(unit_number, error.to_json_with_kind())
            for bucket in range(self.bucket_count):
                yield bucket, failed_split


@dataclass(frozen=True)
class MergeTask(Generic[Result]):
    """Merges the pieces of a bucket."""

    merge: Merge[Result]
    limits: ExecutorLimits | None

    def __call__(self, bucket: int, pieces: Iterable[tuple[int, bytes | FailedSplit]]) -> Iterator[UnitOutcome[Result]]:
        """Yield the outcome of the bucket."""
        _apply_limits(self.limits)
        reader = _read_pieces(piece for _, piece in pieces)
        try:
            result = self.merge(bucket, reader)
            for _ in reader:  # a piece that the merge left unread may be the error of a split
                pass
            yield UnitOutcome(result)
        except RunnelError as error:
            yield UnitOutcome(error=error.to_json_with_kind())


def get_bucket(bucket: int) -> int:
    """Return the partition of Spark for a bucket: the same number."""
    return bucket


def _read_pieces(pieces: Iterator[bytes | FailedSplit]) -> Iterator[bytes]:
    """Yield the pieces; raise the error of the first unit whose split failed, whatever piece comes first."""
    for piece in pieces:
        if isinstance(piece, FailedSplit):
            failures = [piece, *(other for other in pieces if isinstance(other, FailedSplit))]
            raise error_from_json(min(failures, key=lambda failure: failure.unit_number).error)
        yield piece


def _apply_limits(limits: ExecutorLimits | None) -> None:
    if limits is not None:
        limit_resources(limits.threads, limits.memory_bytes)


def _exempt_modules() -> None:
    """Let the garbage collector pass over all modules: Spark collects garbage after each task, for 0.1 s otherwise."""
    global _exempt_count
    if len(sys.modules) != _exempt_count:
        gc.collect()
        gc.freeze()
        _exempt_count = len(sys.modules)
