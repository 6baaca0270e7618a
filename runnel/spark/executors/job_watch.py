"""Watch jobs on a cluster: count finished tasks, and notice that no executor works for them."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from runnel.errors import Unreachable
from runnel.spark.jvm.command_line import is_local
from runnel.spark.task_progress import read_task_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_EXECUTOR_SECONDS = 60.0


class ExecutorWatch:
    """The progress of a job group from now on. Raises if the application has had no executor for a minute."""

    def __init__(self, spark: "SparkSession", job_group: str, patience_seconds: float = NO_EXECUTOR_SECONDS) -> None:
        self._spark = spark
        self._job_group = job_group
        self._starvation = StarvationWatch(spark, patience_seconds)
        self._done_before = self._count_done()

    def check_progress(self) -> int:
        """Return how many tasks of the group finished since; raise if no executor is there for too long."""
        self._starvation.check_executors()
        return max(0, self._count_done() - self._done_before)

    def _count_done(self) -> int:
        return read_task_progress(self._spark, self._job_group)[0]


class StarvationWatch:
    """Notices that jobs wait for executors of a cluster that gives none."""

    def __init__(self, spark: "SparkSession", patience_seconds: float = NO_EXECUTOR_SECONDS) -> None:
        self._spark = spark
        self._patience_seconds = patience_seconds
        self._has_cluster = not is_local(spark.sparkContext.master or "")
        self._last_fine_at = time.monotonic()

    def check_executors(self) -> None:
        """Raise if jobs have waited without any executor for too long; call it every few seconds."""
        if not self._has_cluster:
            return
        now = time.monotonic()
        with suppress(Exception):  # the JVM may be ending; the job itself reports it
            if count_executors(self._spark) or not self._spark.sparkContext.statusTracker().getActiveStageIds():
                self._last_fine_at = now
        if now - self._last_fine_at > self._patience_seconds:
            raise no_executor_error(self._spark, self._patience_seconds)


def count_executors(spark: "SparkSession") -> int:
    """Return how many executors the application has now."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def no_executor_error(spark: "SparkSession", seconds: float) -> Unreachable:
    """Return the error for an application to which its master gave no executor."""
    master = spark.sparkContext.master
    what = f"the master {master} gave this application no executor for {seconds:.0f} seconds"
    fix = (
        "its web page shows whether workers are there and who uses their cores and memory; spark.executor.memory and "
        "spark.executor.cores must fit into one worker"
    )
    return Unreachable("SPARK_NO_EXECUTOR", what, at=master, fix=fix)
