"""Run work units as tasks of a Spark job, one task per unit, and shuffles as two stages of one.

Spark runs the task of a lost executor again. An error for users ends the job at once, without further attempts; any
other exception is an attempt that failed, as for every task of Spark.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from runnel.errors import RunnelError, Unreachable, error_from_json
from runnel.lake.work_runner import Merge, ReportUnits, Split
from runnel.model.work_place import DEFAULT_SPLIT_BYTES, EXECUTORS, WorkPlace
from runnel.spark.executors.job_watch import ExecutorWatch
from runnel.spark.executors.task_limits import ExecutorLimits, read_executor_limits
from runnel.spark.executors.unit_task import MergeTask, SplitTask, UnitOutcome, UnitTask, get_bucket

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Unit = TypeVar("Unit")
Result = TypeVar("Result")
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class ExecutorRunner:
    """Works on units on Spark's executors, in a job group by which they are watched and cancelled."""

    spark: "SparkSession"
    job_group: str
    reason: str = ""
    split_bytes: int = DEFAULT_SPLIT_BYTES
    is_limited: bool = True  # False for work that uses neither DuckDB nor Arrow, which may be missing there

    @property
    def place(self) -> WorkPlace:
        """Return the executors as the place."""
        return WorkPlace(EXECUTORS, self.reason)

    @property
    def parallel_units(self) -> int:
        """Return how many tasks Spark runs at the same time, as far as it knows now."""
        return max(1, self.spark.sparkContext.defaultParallelism)

    @property
    def may_run_twice(self) -> bool:
        """Return whether Spark starts a slow task a second time."""
        return str(self.spark.sparkContext.getConf().get("spark.speculation", "false")).lower() == "true"

    def run(
        self, work: Callable[[Unit], Result], units: Sequence[Unit], report_units: ReportUnits | None = None
    ) -> list[Result]:
        """Return the result of each unit, in order; raises the first error."""
        if not units:
            return []
        task = UnitTask(work, self._read_limits())

        def collect(context: "SparkContext") -> "list[UnitOutcome[Result]]":
            return context.parallelize(units, len(units)).map(task).collect()

        return self._run_job(collect, len(units), report_units)

    def run_shuffled(
        self,
        split: Split[Unit],
        units: Sequence[Unit],
        merge: Merge[Result],
        bucket_count: int,
        report_units: ReportUnits | None = None,
    ) -> list[Result]:
        """Split all units in one stage of a Spark job and merge the buckets in the next, one task per bucket."""
        limits = self._read_limits()
        split_task, merge_task = SplitTask(split, limits, bucket_count), MergeTask(merge, limits)

        def collect(context: "SparkContext") -> "list[UnitOutcome[Result]]":
            pieces = context.parallelize(units, max(1, len(units))).mapPartitionsWithIndex(split_task)
            return pieces.partitionBy(bucket_count, get_bucket).mapPartitionsWithIndex(merge_task).collect()

        return self._run_job(collect, len(units) + bucket_count, report_units)

    def _read_limits(self) -> ExecutorLimits | None:
        return read_executor_limits(self.spark) if self.is_limited else None

    def _run_job(
        self,
        collect: "Callable[[SparkContext], list[UnitOutcome[Result]]]",
        task_count: int,
        report_units: ReportUnits | None,
    ) -> list[Result]:
        job = _UnitJob(self, collect)
        watch = ExecutorWatch(self.spark, self.job_group)
        job.start()
        try:
            while not job.is_over.wait(POLL_SECONDS):
                done = watch.check_progress()
                if report_units is not None:
                    report_units(min(done, task_count), task_count)
        except BaseException:
            self.spark.sparkContext.cancelJobGroup(self.job_group)
            job.is_over.wait()
            raise
        outcomes = job.take_outcomes()
        if report_units is not None:
            report_units(task_count, task_count)
        return [_unwrap(outcome) for outcome in outcomes]


class _UnitJob(Generic[Result]):
    """A Spark job, in a thread of its own: its caller reports progress and can be cancelled."""

    def __init__(self, runner: ExecutorRunner, collect: "Callable[[SparkContext], list[UnitOutcome[Result]]]") -> None:
        self.is_over = threading.Event()
        self._runner = runner
        self._collect = collect
        self._outcomes: list[UnitOutcome[Result]] = []
        self._error: BaseException | None = None

    def start(self) -> None:
        from pyspark import InheritableThread

        InheritableThread(target=self._run, session=self._runner.spark, name="runnel-units", daemon=True).start()

    def _run(self) -> None:
        context = self._runner.spark.sparkContext
        try:
            context.setJobGroup(self._runner.job_group, "work units", interruptOnCancel=True)
            self._outcomes = self._collect(context)
        except BaseException as error:
            self._error = error
        finally:
            self.is_over.set()

    def take_outcomes(self) -> list[UnitOutcome[Result]]:
        """Return the outcomes of all units; raise if the job failed."""
        if self._error is not None:
            raise describe_failed_job(self._error) from self._error
        return self._outcomes


def _unwrap(outcome: UnitOutcome[Result]) -> Result:
    if outcome.error is not None:
        raise error_from_json(outcome.error)
    return outcome.result  # type: ignore[return-value]  # None is a result, too


def describe_failed_job(error: BaseException) -> RunnelError:
    """Return the error for a job whose tasks failed on the executors, with the line that says most."""
    text = str(getattr(error, "java_exception", None) or error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", "  "))]
    python_errors = [line for line in lines if "Error: " in line or "Exception: " in line]
    reason = next(reversed(python_errors), lines[0] if lines else type(error).__name__)
    fix = "the log of the run has the whole trace; `runnel doctor` checks the cluster"
    return Unreachable("SPARK_EXECUTOR", f"work on Spark's executors failed: {reason[:300]}", fix=fix)
