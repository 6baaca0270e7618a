"""Measure where the time of each step of a run goes.

A step's result is reported first; its timing is recorded afterwards, so that nobody waits for it.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runnel.phase_timer import PhaseSegment
from runnel.run.metrics.phase_times import split_passes, sum_by_phase, sum_waits
from runnel.run.metrics.spark_metrics import read_stages, summarize_stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.names import TableName
    from runnel.run.results.run_result import StepResult
    from runnel.run.run_context import RunSpec

_PATIENCE_SECONDS = 1.0
_LEAST_SECONDS = 0.001


@dataclass(frozen=True)
class StepTiming:
    """Hold the time of one step: its segments since the steps of the run began, and Spark's metrics."""

    segments: tuple[PhaseSegment, ...]
    spark: dict[str, Any] | None = None

    def attach_to(self, result: "StepResult") -> "StepResult":
        """Return the result of the step with its timing."""
        return replace(result, spent=sum_by_phase(self.segments), waits=sum_waits(self.segments), spark=self.spark)


class Timeline(dict[str, float]):
    """Map each stage of a run to its seconds, in order: queue, plan, spark, steps, verify, publish.

    `again` comes before `plan` if the run was planned again because another commit was faster: the time until then.
    """

    def __init__(self, spec: "RunSpec") -> None:
        planned_at = spec.planned_at or spec.started_at
        replan_seconds = max((planned_at - spec.started_at).total_seconds(), 0.0)
        plan_seconds = max((datetime.now(UTC) - planned_at).total_seconds(), 0.0)
        super().__init__(queue=round(spec.queued_seconds, 3))
        self |= {"again": round(replan_seconds, 3)} if replan_seconds else {}
        self["plan"] = round(plan_seconds, 3)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time of the block to a name."""
        started = time.monotonic()
        try:
            yield
        finally:
            self[name] = round(self.get(name, 0.0) + time.monotonic() - started, 3)

    def split_off(self, name: str, source_name: str, seconds: float) -> None:
        """Move seconds from `source_name` to `name`."""
        self[name], self[source_name] = round(seconds, 3), round(max(self[source_name] - seconds, 0.0), 3)


class StepTimings:
    """Record the timings of the steps of one run. Safe for several threads."""

    def __init__(self, dependencies: "Mapping[TableName, Iterable[TableName]]") -> None:
        self._started_at = time.time()
        self._dependencies = dependencies
        self._ended_at: dict[TableName, float] = {}
        self._timings: dict[TableName, StepTiming] = {}
        self._open_steps = 0
        self._changed = threading.Condition()
        self.spark_startup: tuple[float, float] | None = None  # when Spark was requested, and when it was ready

    def begin_step(self) -> None:
        """Note that a step begins; `end_step` and `record_step` must follow."""
        with self._changed:
            self._open_steps += 1

    def end_step(self, table: "TableName") -> None:
        """Note that a step has ended, before its result is reported."""
        self._ended_at[table] = time.time()

    def record_step(
        self, table: "TableName", segments: tuple[PhaseSegment, ...], session: "SparkSession | None", job_group: str
    ) -> StepTiming:
        """Record the timing of a step that has ended."""
        spark_stages = read_stages(session, job_group) if session is not None else ()
        waiting_segments = self._find_waits(table, segments[0].start)
        timing = StepTiming(split_passes((*waiting_segments, *segments), spark_stages), summarize_stages(spark_stages))
        with self._changed:
            self._timings[table] = timing
            self._open_steps -= 1
            self._changed.notify_all()
        return timing

    def attach_to_all(self, steps: "Iterable[StepResult]") -> "tuple[StepResult, ...]":
        """Return the results with their timings; a timing that is not recorded within a second is left out."""
        with self._changed:
            self._changed.wait_for(lambda: self._open_steps <= 0, _PATIENCE_SECONDS)
            return tuple(
                self._timings[step.table].attach_to(step) if step.table in self._timings else step for step in steps
            )

    @property
    def recorded_timings(self) -> "dict[TableName, StepTiming]":
        """Return the timings that are recorded by now."""
        with self._changed:
            return dict(self._timings)

    @property
    def spark_seconds(self) -> float:
        """Return how long the run waited for Spark and its slot."""
        return self.spark_startup[1] - self.spark_startup[0] if self.spark_startup else 0.0

    def _find_waits(self, table: "TableName", started_at: float) -> tuple[PhaseSegment, ...]:
        """Return what a step waited for before it began: its inputs, then Spark, then a free thread."""
        inputs_ready_at = min(
            max(
                (self._ended_at.get(dependency, self._started_at) for dependency in self._dependencies[table]),
                default=self._started_at,
            ),
            started_at,
        )
        spark_ready_at = (
            min(max(self.spark_startup[1], inputs_ready_at), started_at)
            if self.spark_startup and self.spark_startup[0] <= started_at
            else inputs_ready_at
        )
        segments = (
            PhaseSegment("inputs", self._started_at, inputs_ready_at),
            PhaseSegment("spark", inputs_ready_at, spark_ready_at),
            PhaseSegment("slot", spark_ready_at, started_at),
        )
        return tuple(segment for segment in segments if segment.seconds >= _LEAST_SECONDS)
