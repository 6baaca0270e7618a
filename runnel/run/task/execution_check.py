"""Tell whether a task computed something while its frame was built, such as `orders.count()` or `.collect()`.

What it saw then depends on which rows it was given, and no plan shows that.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTION = "spark.job.description"
_COMMANDS = ("CreateViewCommand", "DropTempViewCommand", "SetCommand", "ShowTables", "DescribeTable")


@dataclass
class Executions:
    """What was computed meanwhile; known once that has ended."""

    happened: bool = False


@contextmanager
def watched(session: "SparkSession") -> Iterator[Executions]:
    """Watch what this thread computes. Costs a few calls of Spark unless something was computed by anyone."""
    context = session.sparkContext
    found, mark = Executions(), f"runnel-{secrets.token_hex(8)}"
    before_description = context.getLocalProperty(_DESCRIPTION)
    context.addJobTag(mark)
    context.setLocalProperty(_DESCRIPTION, mark)
    before = _counters(session)
    try:
        yield found
    finally:
        after = _counters(session)
        context.setLocalProperty(_DESCRIPTION, before_description)  # type: ignore[arg-type]
        context.removeJobTag(mark)
    is_quiet = after.queries == before.queries + 1 and after.jobs == before.jobs
    found.happened = not is_quiet and _is_own(session, mark, before.queries, after.queries)


@dataclass(frozen=True)
class _Counters:
    """How many queries and jobs this Spark has begun; asking for it counts as a query itself."""

    queries: int
    jobs: int


def _counters(session: "SparkSession") -> _Counters:
    jvm: Any = session.sparkContext._jvm
    executions = getattr(getattr(jvm.org.apache.spark.sql.execution, "SQLExecution$"), "MODULE$")
    return _Counters(executions.nextExecutionId(), session.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def _is_own(session: "SparkSession", mark: str, first: int, last: int) -> bool:
    """Tell whether one of the queries with these numbers, or a job, was this thread's and no mere command."""
    inner: Any = session.sparkContext._jsc.sc()
    inner.listenerBus().waitUntilEmpty()
    if len(list(inner.statusTracker().getJobIdsForTag(mark))):
        return True
    known: Any = session._jsparkSession.sharedState().statusStore()
    for number in range(first + 1, last):
        execution = known.execution(number)
        if execution.isDefined() and execution.get().description() == mark:
            plan = str(execution.get().physicalPlanDescription())
            if not any(f"Execute {command}" in plan for command in _COMMANDS):
                return True
    return False
