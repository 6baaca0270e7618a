"""What the time of each step of a run went to, gathered beside it: a step is told first, then accounted for."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runnel.phase_timer import Segment
from runnel.run.metrics.phase_times import by_phase, shared, waits
from runnel.run.metrics.spark_metrics import effort, stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.names import TableName
    from runnel.run.results.run_result import Done
    from runnel.run.run_context import Order

_PATIENCE_SECONDS = 1.0
_LEAST_SECONDS = 0.001


@dataclass(frozen=True)
class Account:
    """The time of one step: segments from when the steps of its run began, and what Spark did for it."""

    segments: tuple[Segment, ...]
    spark: dict[str, Any] | None = None

    def on(self, done: "Done") -> "Done":
        """Return what became of the step, with where its time went."""
        return replace(done, spent=by_phase(self.segments), waits=waits(self.segments), spark=self.spark)


class Timeline(dict[str, float]):
    """What a run did, one thing after another, each with its seconds: queue, plan, spark, steps, verify, publish.

    `again` comes before `plan` where somebody else was faster, and all that was done until then counts no more.
    """

    def __init__(self, order: "Order") -> None:
        planned_at = order.planned_at or order.started_at
        again = max((planned_at - order.started_at).total_seconds(), 0.0)
        plan = max((datetime.now(UTC) - planned_at).total_seconds(), 0.0)
        super().__init__(queue=round(order.queued_seconds, 3))
        self |= {"again": round(again, 3)} if again else {}
        self["plan"] = round(plan, 3)

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        """Let the time of a block go to a name."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self[name] = round(self.get(name, 0.0) + time.monotonic() - begun, 3)

    def part(self, name: str, whole: str, seconds: float) -> None:
        """Give seconds of one name to another."""
        self[name], self[whole] = round(seconds, 3), round(max(self[whole] - seconds, 0.0), 3)


class Accounts:
    """The accounts of one run, from when its steps begin."""

    def __init__(self, needs: "Mapping[TableName, Iterable[TableName]]") -> None:
        self._began = time.time()
        self._needs = needs
        self._ended: dict[TableName, float] = {}
        self._found: dict[TableName, Account] = {}
        self._open = 0
        self._settled = threading.Condition()
        self.spark: tuple[float, float] | None = None  # when Spark was started, and was there

    def begin(self) -> None:
        """Note that a step begins; `end` and `add` follow."""
        with self._settled:
            self._open += 1

    def end(self, table: "TableName") -> None:
        """Note that a step has ended, before anybody is told."""
        self._ended[table] = time.time()

    def add(self, table: "TableName", did: tuple[Segment, ...], session: "SparkSession | None", group: str) -> Account:
        """Account for a step that has ended."""
        ran = stages(session, group) if session is not None else ()
        before = self._waited(table, did[0].start)
        account = Account(shared((*before, *did), ran), effort(ran))
        with self._settled:
            self._found[table] = account
            self._open -= 1
            self._settled.notify_all()
        return account

    def of(self, steps: "Iterable[Done]") -> "tuple[Done, ...]":
        """Return steps with where their time went; what is not known soon is left out."""
        with self._settled:
            self._settled.wait_for(lambda: self._open <= 0, _PATIENCE_SECONDS)
            return tuple(self._found[step.table].on(step) if step.table in self._found else step for step in steps)

    @property
    def found(self) -> "dict[TableName, Account]":
        """Return what is known by now."""
        with self._settled:
            return dict(self._found)

    @property
    def spark_seconds(self) -> float:
        """Return how long the run waited until Spark and its slot were there."""
        return self.spark[1] - self.spark[0] if self.spark else 0.0

    def _waited(self, table: "TableName", until: float) -> tuple[Segment, ...]:
        """Return what a step waited for before it began: its inputs, then Spark, then its turn."""
        ready = min(
            max((self._ended.get(need, self._began) for need in self._needs[table]), default=self._began), until
        )
        warm = min(max(self.spark[1], ready), until) if self.spark and self.spark[0] <= until else ready
        found = (Segment("inputs", self._began, ready), Segment("spark", ready, warm), Segment("slot", warm, until))
        return tuple(one for one in found if one.seconds >= _LEAST_SECONDS)
