"""Detect whether a task ran Spark jobs while its frame was built, such as `orders.count()` or `.collect()`.

The result of such a job depends on the rows that the task was given, and the plan does not show that.
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
class ObservedExecutions:
    """Whether something was executed during the block; set when the block ends."""

    happened: bool = False


@contextmanager
def observe_executions(session: "SparkSession") -> Iterator[ObservedExecutions]:
    """Detect whether this thread executes something on Spark during the block.

    Costs a few calls of Spark, and more only if any thread executed something.
    """
    context = session.sparkContext
    executions, job_tag = ObservedExecutions(), f"runnel-{secrets.token_hex(8)}"
    previous_description = context.getLocalProperty(_DESCRIPTION)
    context.addJobTag(job_tag)
    context.setLocalProperty(_DESCRIPTION, job_tag)
    counters_before = _read_counters(session)
    try:
        yield executions
    finally:
        counters_after = _read_counters(session)
        context.setLocalProperty(_DESCRIPTION, previous_description)  # type: ignore[arg-type]
        context.removeJobTag(job_tag)
    is_quiet = counters_after.queries == counters_before.queries + 1 and counters_after.jobs == counters_before.jobs
    executions.happened = not is_quiet and _has_own_execution(
        session, job_tag, counters_before.queries, counters_after.queries
    )


@dataclass(frozen=True)
class _ExecutionCounters:
    """How many queries and jobs this Spark has begun; reading the counters counts as a query itself."""

    queries: int
    jobs: int


def _read_counters(session: "SparkSession") -> _ExecutionCounters:
    jvm: Any = session.sparkContext._jvm
    executions = getattr(getattr(jvm.org.apache.spark.sql.execution, "SQLExecution$"), "MODULE$")
    return _ExecutionCounters(
        executions.nextExecutionId(), session.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
    )


def _has_own_execution(session: "SparkSession", job_tag: str, first: int, last: int) -> bool:
    """Return whether this thread started one of the queries with these ids, or a job; commands don't count."""
    java_context: Any = session.sparkContext._jsc.sc()
    java_context.listenerBus().waitUntilEmpty()
    if len(list(java_context.statusTracker().getJobIdsForTag(job_tag))):
        return True
    status_store: Any = session._jsparkSession.sharedState().statusStore()
    for execution_id in range(first + 1, last):
        execution = status_store.execution(execution_id)
        if execution.isDefined() and execution.get().description() == job_tag:
            plan = str(execution.get().physicalPlanDescription())
            if not any(f"Execute {command}" in plan for command in _COMMANDS):
                return True
    return False
