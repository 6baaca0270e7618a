"""Run work units: small values that stand for a piece of work, such as some files to rewrite.

The same function works on a unit in this process or on an executor of Spark (`spark/executors/unit_runner.py`). It
returns a small value and commits nothing: the caller commits, with what all units returned. So a unit that is lost,
repeated or done twice leaves nothing but files that no version needs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from runnel import temp_dirs
from runnel.lake.piece_spill import PieceSpill
from runnel.model.progress import Progress
from runnel.model.work_place import DEFAULT_SPLIT_BYTES, PROCESS, ByteCount, WorkPlace

Unit = TypeVar("Unit")
Result = TypeVar("Result")
Split = Callable[[Unit], Iterable[tuple[int, bytes]]]
"""Reads a unit and yields its rows as pieces of about 256 KB (`lake/scan/row_pieces.py`), each with its bucket."""
Merge = Callable[[int, Iterator[bytes]], Result]
"""Works on all pieces of a bucket, which come in any order, and returns a small result."""
ReportUnits = Callable[[int, int], None]
"""Called with the number of units that are done and the number of all units; raises if the run was cancelled."""


class WorkRunner(Protocol):
    """Runs work units in one place. Functions, units and results must be picklable."""

    @property
    def place(self) -> WorkPlace:
        """Return where the units are worked on."""

    @property
    def parallel_units(self) -> int:
        """Return how many units are worked on at the same time; 1 if the work itself uses all processors."""

    @property
    def may_run_twice(self) -> bool:
        """Return whether two attempts may work on a unit at the same time, although nothing failed."""

    @property
    def split_bytes(self) -> int:
        """Return the size of the splits into which a larger file is divided."""

    def run(
        self, work: Callable[[Unit], Result], units: Sequence[Unit], report_units: ReportUnits | None = None
    ) -> list[Result]:
        """Return the result of each unit, in order; raises the first error."""

    def run_shuffled(
        self,
        split: Split[Unit],
        units: Sequence[Unit],
        merge: Merge[Result],
        bucket_count: int,
        report_units: ReportUnits | None = None,
    ) -> list[Result]:
        """Split all units into pieces, then merge each bucket, also one without pieces; return results by bucket.

        Progress counts units and buckets. Raises the first error, first of the units, then of the buckets.
        """


class ChooseRunner(Protocol):
    """Chooses where work is done."""

    def __call__(self, byte_count: ByteCount, local_paths: Iterable[str] = ()) -> WorkRunner:
        """Return the runner for work that reads or writes this many bytes, and these files or folders of a disk."""


@dataclass(frozen=True)
class ProcessRunner:
    """Works on units in this process, one after the other: DuckDB and Arrow use all processors for each."""

    reason: str = "the work is done in this process"
    parallel_units: int = 1
    split_bytes: int = DEFAULT_SPLIT_BYTES

    @property
    def place(self) -> WorkPlace:
        """Return this process as the place."""
        return WorkPlace(PROCESS, self.reason)

    @property
    def may_run_twice(self) -> bool:
        """Return that each unit is worked on once."""
        return False

    def run(
        self, work: Callable[[Unit], Result], units: Sequence[Unit], report_units: ReportUnits | None = None
    ) -> list[Result]:
        """Return the result of each unit, in order; raises the first error."""
        results: list[Result] = []
        for unit in units:
            results.append(work(unit))
            if report_units is not None:
                report_units(len(results), len(units))
        return results

    def run_shuffled(
        self,
        split: Split[Unit],
        units: Sequence[Unit],
        merge: Merge[Result],
        bucket_count: int,
        report_units: ReportUnits | None = None,
    ) -> list[Result]:
        """Split all units, then merge each bucket; pieces that do not fit in memory wait in a temporary folder."""

        def report(done: int) -> None:
            if report_units is not None:
                report_units(done, len(units) + bucket_count)

        results: list[Result] = []
        with temp_dirs.create_scoped("shuffle") as folder:
            spill = PieceSpill(Path(folder))
            for number, unit in enumerate(units, start=1):
                for bucket, piece in split(unit):
                    spill.add(bucket, piece)
                report(number)
            for bucket in range(bucket_count):
                results.append(merge(bucket, spill.take(bucket)))
                report(len(units) + len(results))
        return results


def run_in_process(byte_count: ByteCount, local_paths: Iterable[str] = ()) -> WorkRunner:  # noqa: ARG001 - any work
    """Return the runner of this process for any amount of work."""
    return ProcessRunner()


@dataclass(frozen=True)
class WorkContext:
    """Where an operation does its work, and the callback for its progress."""

    choose_runner: ChooseRunner = run_in_process
    report_progress: Progress | None = None

    def run(
        self,
        work: Callable[[Unit], Result],
        units: Sequence[Unit],
        byte_count: int,
        activity: str,
        *,
        local_paths: Iterable[str] = (),
    ) -> list[Result]:
        """Return the result of each unit, in order.

        `byte_count` is how much they read or write in all, `local_paths` are files of a disk that they need.
        """
        runner = self.choose_runner(byte_count, local_paths)
        return runner.run(work, units, self.make_unit_reporter(activity))

    def make_unit_reporter(self, activity: str) -> ReportUnits:
        """Return a callback for the number of units that are done, of a runner that was chosen before."""
        report_progress = self.report_progress

        def report_units(done: int, total: int) -> None:
            if report_progress is not None:
                report_progress(activity, done, total)

        return report_units


IN_PROCESS = WorkContext()
"""Work in this process whose progress nobody follows."""
