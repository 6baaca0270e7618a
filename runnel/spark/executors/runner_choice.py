"""Choose the runner of work units by the rules of a project, and start Spark if they go to its executors."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.lake.work_runner import ProcessRunner, WorkRunner
from runnel.model.work_place import EXECUTORS, ByteCount, WorkPlaceRules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RunnerChoice:
    """Chooses the runner of work whose Spark jobs belong to `job_group`."""

    rules: WorkPlaceRules
    get_spark: "Callable[[], SparkSession]"
    job_group: str

    def __call__(self, byte_count: ByteCount, local_paths: Iterable[str] = ()) -> WorkRunner:
        """Return the runner for work that reads or writes this many bytes, and these paths of a disk."""
        place = self.rules.choose(byte_count, local_paths)
        if place.name != EXECUTORS:
            return ProcessRunner(place.reason)
        from runnel.spark.executors.unit_runner import ExecutorRunner

        return ExecutorRunner(self.get_spark(), self.job_group, place.reason, self.rules.split_bytes)
