"""Read Spark's metrics for a step: tasks, bytes and rows read, written, shuffled and spilled, and task skew.

They come from the status store of the driver, which exists without a UI too. Missing metrics are left out: no run
fails or waits for them.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.spark.per_driver_cache import PerDriverCache

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LEAST_MS = 500  # of a stage: skew of a shorter one does not matter
_MOST_STAGES = 200
_PATIENCE_SECONDS = 0.3  # Spark's status is updated asynchronously
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class StageMetrics:
    """The metrics of a Spark stage; times are seconds since 1970. `task_ms` are the median and the longest task."""

    start: float
    end: float
    tasks: int = 0
    run_ms: int = 0
    cpu_ms: int = 0
    gc_ms: int = 0
    input_bytes: int = 0
    input_rows: int = 0
    output_bytes: int = 0
    output_rows: int = 0
    shuffle_read_bytes: int = 0
    shuffle_write_bytes: int = 0
    spill_memory_bytes: int = 0
    spill_disk_bytes: int = 0
    failed_tasks: int = 0
    task_ms: tuple[float, float] | None = None

    @property
    def only_reads(self) -> bool:
        """Return whether the stage only reads rows and passes them to a shuffle."""
        reads = self.input_rows > 0 or self.input_bytes > 0
        return reads and not self.shuffle_read_bytes and not (self.output_rows or self.output_bytes)


def read_stages(session: "SparkSession", job_group: str) -> tuple[StageMetrics, ...]:
    """Return the stages that ran for a job group, in order; none if Spark does not know them."""
    try:
        return tuple(_list_stages(session.sparkContext, job_group))
    except Exception:  # Spark may have stopped, or forgotten old jobs; metrics must not fail a run
        return ()


def summarize_stages(stage_metrics: Iterable[StageMetrics]) -> dict[str, Any] | None:
    """Return the metrics of a step as JSON; None if no stage ran.

    >>> summarize_stages([StageMetrics(0, 1, tasks=3, run_ms=900, task_ms=(100, 700), spill_disk_bytes=5)])["skew"]
    {'longest_seconds': 0.7, 'median_seconds': 0.1, 'times': 7.0}
    """
    finished_stages = list(stage_metrics)
    if not finished_stages:
        return None
    names = (
        "tasks input_bytes input_rows output_bytes output_rows shuffle_read_bytes shuffle_write_bytes"
        " spill_memory_bytes spill_disk_bytes failed_tasks"
    )
    sums = {name: sum(getattr(stage, name) for stage in finished_stages) for name in names.split()}
    times = {
        f"{name}_seconds": sum(getattr(stage, f"{name}_ms") for stage in finished_stages) / 1000
        for name in ("run", "cpu", "gc")
    }
    return {"stages": len(finished_stages), **sums, **times, "skew": _find_skew(finished_stages)}


def _find_skew(finished_stages: list[StageMetrics]) -> dict[str, float] | None:
    """Return the longest and the median task time of the stage in which they differ most."""
    uneven = [stage.task_ms for stage in finished_stages if stage.task_ms is not None]
    if not uneven:
        return None
    median, longest = max(uneven, key=lambda task_times: task_times[1] - task_times[0])
    times = round(longest / max(median, 1.0), 1)
    return {"longest_seconds": longest / 1000, "median_seconds": median / 1000, "times": times}


def _list_stages(context: "SparkContext", job_group: str) -> Iterable[StageMetrics]:
    driver_status, ids = _driver_statuses.get(context), set[int]()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for job in sorted(context.statusTracker().getJobIdsForGroup(job_group)):
        ids.update(driver_status.read_job(job, deadline)["stageIds"])
    for stage_id in sorted(ids)[:_MOST_STAGES]:
        for attempt in driver_status.read_attempts(stage_id):
            if attempt.get("submissionTime") and attempt.get("completionTime"):
                yield _make_stage(attempt, driver_status.read_task_times(stage_id, attempt))


class _DriverStatus:
    """Read the status store of the driver. Each question is one call of Java that returns JSON."""

    def __init__(self, context: "SparkContext") -> None:
        jvm, gateway = context._jvm, context._gateway
        assert jvm is not None
        assert gateway is not None
        self._status_store: Any = context._jsc.sc().statusStore()
        self._mapper: Any = jvm.com.fasterxml.jackson.databind.ObjectMapper()  # one call instead of one for each metric
        self._mapper.registerModule(jvm.com.fasterxml.jackson.module.scala.DefaultScalaModule())
        self._all_task_statuses = jvm.java.util.ArrayList()
        self._no_quantiles, self._quantiles = gateway.new_array(jvm.double, 0), gateway.new_array(jvm.double, 2)
        self._quantiles[0], self._quantiles[1] = 0.5, 1.0

    def read_job(self, job_id: int, deadline: float) -> Mapping[str, Any]:
        """Return a job once it has ended, or as it is at the deadline."""
        while True:
            job_data: dict[str, Any] = json.loads(self._mapper.writeValueAsString(self._status_store.job(job_id)))
            if job_data["status"] != "RUNNING" or time.monotonic() > deadline:
                return job_data
            time.sleep(_PAUSE_SECONDS)

    def read_attempts(self, stage_id: int, *, with_task_times: bool = False) -> list[dict[str, Any]]:
        """Return the attempts of a stage, with quantiles of its task times on request."""
        stage_data = self._status_store.stageData(
            stage_id,
            False,
            self._all_task_statuses,
            with_task_times,
            self._quantiles if with_task_times else self._no_quantiles,
        )
        stage_attempts: list[dict[str, Any]] = json.loads(self._mapper.writeValueAsString(stage_data))
        return stage_attempts

    def read_task_times(self, stage_id: int, attempt: Mapping[str, Any]) -> tuple[float, float] | None:
        """Return the median and the longest task time, if several tasks took long enough to compare."""
        if attempt["numCompleteTasks"] < 2 or attempt["executorRunTime"] < _LEAST_MS:
            return None
        for candidate in self.read_attempts(stage_id, with_task_times=True):
            distributions = candidate.get("taskMetricsDistributions")
            if candidate["attemptId"] == attempt["attemptId"] and distributions:
                median, longest = distributions["executorRunTime"]
                return float(median), float(longest)
        return None


def _make_stage(attempt: Mapping[str, Any], task_ms: tuple[float, float] | None) -> StageMetrics:
    return StageMetrics(
        start=attempt["submissionTime"] / 1000,
        end=attempt["completionTime"] / 1000,
        tasks=attempt["numCompleteTasks"],
        run_ms=attempt["executorRunTime"],
        cpu_ms=attempt["executorCpuTime"] // 1_000_000,
        gc_ms=attempt["jvmGcTime"],
        input_bytes=attempt["inputBytes"],
        input_rows=attempt["inputRecords"],
        output_bytes=attempt["outputBytes"],
        output_rows=attempt["outputRecords"],
        shuffle_read_bytes=attempt["shuffleReadBytes"],
        shuffle_write_bytes=attempt["shuffleWriteBytes"],
        spill_memory_bytes=attempt["memoryBytesSpilled"],
        spill_disk_bytes=attempt["diskBytesSpilled"],
        failed_tasks=attempt["numFailedTasks"],
        task_ms=task_ms,
    )


_driver_statuses = PerDriverCache(_DriverStatus)
