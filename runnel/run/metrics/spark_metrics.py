"""What Spark did for a step: its tasks, what they read, wrote, shuffled and spilled, and how unevenly they took.

Read from the status that the driver keeps anyway, also without a UI. What it does not tell is left out: no run fails
or waits for it.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runnel.spark.per_driver_cache import PerDriver

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LEAST_MS = 500  # of a stage: whether less is uneven does not matter
_MOST_STAGES = 200
_PATIENCE_SECONDS = 0.3  # Spark's status comes through a queue
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class Stage:
    """A stage of Spark that ran; times are seconds since 1970. `task_ms` are the median and the longest task."""

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
        """Tell whether all that it does is to bring rows to a shuffle."""
        reads = self.input_rows > 0 or self.input_bytes > 0
        return reads and not self.shuffle_read_bytes and not (self.output_rows or self.output_bytes)


def stages(session: "SparkSession", group: str) -> tuple[Stage, ...]:
    """Return the stages that ran for a job group, in order; none where Spark does not tell."""
    try:
        return tuple(_stages(session.sparkContext, group))
    except Exception:  # Spark may have gone, or forgotten old jobs; figures are never worth a failure
        return ()


def effort(found: Iterable[Stage]) -> dict[str, Any] | None:
    """Return the figures of a step as JSON; None where no stage ran.

    >>> effort([Stage(0, 1, tasks=3, run_ms=900, task_ms=(100, 700), spill_disk_bytes=5)])["skew"]
    {'longest_seconds': 0.7, 'median_seconds': 0.1, 'times': 7.0}
    """
    ran = list(found)
    if not ran:
        return None
    names = (
        "tasks input_bytes input_rows output_bytes output_rows shuffle_read_bytes shuffle_write_bytes"
        " spill_memory_bytes spill_disk_bytes failed_tasks"
    )
    sums = {name: sum(getattr(one, name) for one in ran) for name in names.split()}
    times = {f"{name}_seconds": sum(getattr(one, f"{name}_ms") for one in ran) / 1000 for name in ("run", "cpu", "gc")}
    return {"stages": len(ran), **sums, **times, "skew": _skew(ran)}


def _skew(ran: list[Stage]) -> dict[str, float] | None:
    """Return how much longer the longest task took than the median, of the stage where that cost most."""
    uneven = [one.task_ms for one in ran if one.task_ms is not None]
    if not uneven:
        return None
    median, longest = max(uneven, key=lambda found: found[1] - found[0])
    times = round(longest / max(median, 1.0), 1)
    return {"longest_seconds": longest / 1000, "median_seconds": median / 1000, "times": times}


def _stages(context: "SparkContext", group: str) -> Iterable[Stage]:
    desk, ids = _desks.of(context), set[int]()
    until = time.monotonic() + _PATIENCE_SECONDS
    for job in sorted(context.statusTracker().getJobIdsForGroup(group)):
        ids.update(desk.job(job, until)["stageIds"])
    for number in sorted(ids)[:_MOST_STAGES]:
        for found in desk.attempts(number):
            if found.get("submissionTime") and found.get("completionTime"):
                yield _stage(found, desk.spread(number, found))


class _Desk:
    """Where the driver tells its status. Each question is one call of Java, and its answer is JSON."""

    def __init__(self, context: "SparkContext") -> None:
        jvm, gateway = context._jvm, context._gateway
        assert jvm is not None
        assert gateway is not None
        self._store: Any = context._jsc.sc().statusStore()
        self._mapper: Any = jvm.com.fasterxml.jackson.databind.ObjectMapper()  # one call instead of one for each figure
        self._mapper.registerModule(jvm.com.fasterxml.jackson.module.scala.DefaultScalaModule())
        self._any = jvm.java.util.ArrayList()
        self._none, self._both = gateway.new_array(jvm.double, 0), gateway.new_array(jvm.double, 2)
        self._both[0], self._both[1] = 0.5, 1.0

    def job(self, job: int, until: float) -> Mapping[str, Any]:
        """Return a job when its end is known, or as it is when time is up."""
        while True:
            found: dict[str, Any] = json.loads(self._mapper.writeValueAsString(self._store.job(job)))
            if found["status"] != "RUNNING" or time.monotonic() > until:
                return found
            time.sleep(_PAUSE_SECONDS)

    def attempts(self, stage: int, *, spread: bool = False) -> list[dict[str, Any]]:
        """Return the attempts of a stage, with the spread of its tasks where that is wanted."""
        asked = self._store.stageData(stage, False, self._any, spread, self._both if spread else self._none)
        found: list[dict[str, Any]] = json.loads(self._mapper.writeValueAsString(asked))
        return found

    def spread(self, stage: int, found: Mapping[str, Any]) -> tuple[float, float] | None:
        """Return the median and the longest time of a task, where several took long enough to compare."""
        if found["numCompleteTasks"] < 2 or found["executorRunTime"] < _LEAST_MS:
            return None
        for one in self.attempts(stage, spread=True):
            told = one.get("taskMetricsDistributions")
            if one["attemptId"] == found["attemptId"] and told:
                median, longest = told["executorRunTime"]
                return float(median), float(longest)
        return None


def _stage(found: Mapping[str, Any], task_ms: tuple[float, float] | None) -> Stage:
    return Stage(
        start=found["submissionTime"] / 1000,
        end=found["completionTime"] / 1000,
        tasks=found["numCompleteTasks"],
        run_ms=found["executorRunTime"],
        cpu_ms=found["executorCpuTime"] // 1_000_000,
        gc_ms=found["jvmGcTime"],
        input_bytes=found["inputBytes"],
        input_rows=found["inputRecords"],
        output_bytes=found["outputBytes"],
        output_rows=found["outputRecords"],
        shuffle_read_bytes=found["shuffleReadBytes"],
        shuffle_write_bytes=found["shuffleWriteBytes"],
        spill_memory_bytes=found["memoryBytesSpilled"],
        spill_disk_bytes=found["diskBytesSpilled"],
        failed_tasks=found["numFailedTasks"],
        task_ms=task_ms,
    )


_desks = PerDriver(_Desk)
