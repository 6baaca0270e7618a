"""Define the context that a task is computed in: the lake, the run's slot and session, its name and start time."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.lake.leases.slots import Slot
    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.run.checks.row_checks import CheckFinding


@dataclass(frozen=True)
class TaskContext:
    """The context of a task. `now` is when the run started, so that all its tasks agree on the time.

    `findings` collects the check results of each table.
    """

    store: "Store"
    slot: "Slot"
    session: "SparkSession"
    run: str
    now: datetime
    findings: "dict[TableName, tuple[CheckFinding, ...]]" = field(default_factory=dict, repr=False, compare=False)

    def identifier(self, table: "TableName") -> str:
        """Return what Spark calls a table of the slot."""
        return f"`{self.slot.name}`.`{table.layer}`.`{table.name}`"


def timestamp_sql(moment: datetime) -> str:
    """Return a time as Spark SQL.

    >>> timestamp_sql(datetime(2026, 1, 2, 8, tzinfo=UTC))
    "timestamp '2026-01-02 08:00:00.000000Z'"
    """
    return f"timestamp '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"
