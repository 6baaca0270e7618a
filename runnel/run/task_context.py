"""Define the context that a task is computed in, and what a run computes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.declare.model.flow import Task
    from runnel.lake.leases.slots import Slot
    from runnel.lake.store import Store
    from runnel.model.table_version import TableVersion
    from runnel.names import TableName
    from runnel.plan.steps import PlanStep
    from runnel.run.checks.row_checks import CheckFinding
    from runnel.run.run_context import RunContext
    from runnel.spark.slot_pool import SlotLease


@dataclass(frozen=True)
class TaskContext:
    """The context of a task. `now` is when the run started, so that all its tasks agree on the time.

    `scheduled_at` is the time for which a schedule queued the run, `findings` collects the check results of each table.
    """

    store: "Store"
    slot: "Slot"
    session: "SparkSession"
    run: str
    now: datetime
    findings: "dict[TableName, tuple[CheckFinding, ...]]" = field(default_factory=dict, repr=False, compare=False)
    scheduled_at: datetime | None = None

    def identifier(self, table: "TableName") -> str:
        """Return what Spark calls a table of the slot."""
        return f"`{self.slot.name}`.`{table.layer}`.`{table.name}`"


@dataclass(frozen=True)
class TaskRun:
    """The computation of one task by a run: the step that the plan decided on, and the versions that it reads."""

    run_context: "RunContext"
    task: "Task"
    step: "PlanStep"
    inputs: "Mapping[TableName, TableVersion]"

    @property
    def head(self) -> "TableVersion | None":
        """Return the current version of the task's table."""
        return self.run_context.heads.get(self.task.table)

    @property
    def start_version(self) -> "TableVersion | None":
        """Return the version of the task's table that the step builds on."""
        step = self.step
        if step.has_detached_base and step.base is not None and step.action in ("rows", "slices"):
            return step.base.head
        return self.head

    def in_full(self, reason: str) -> "TaskRun":
        """Return the computation of the whole table instead, for a reason."""
        return replace(self, step=replace(self.step, action="full", reason=reason))

    def make_context(self, slot_lease: "SlotLease") -> TaskContext:
        """Return the context in which the task is computed in the slot of the run."""
        spec = self.run_context.spec
        return TaskContext(
            self.run_context.store,
            slot_lease.slot,
            slot_lease.session,
            spec.run,
            spec.started_at,
            self.run_context.findings,
            spec.scheduled_at,
        )


def timestamp_sql(moment: datetime) -> str:
    """Return a time as Spark SQL.

    >>> timestamp_sql(datetime(2026, 1, 2, 8, tzinfo=UTC))
    "timestamp '2026-01-02 08:00:00.000000Z'"
    """
    return f"timestamp '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"
