"""Decide the step of a stream: continue with the new rows of the tables that it reads, or skip it.

Pure. The stream itself publishes its table, batch by batch, so a plan only says that it continues.
"""

from collections.abc import Iterable, Mapping

from runnel.declare.model.flow import Task
from runnel.errors import join_names
from runnel.model.table_version import TableVersion
from runnel.names import TableName
from runnel.plan.facts import Facts
from runnel.plan.steps import PlanStep


def decide_stream(
    task: Task, inputs: Mapping[TableName, TableVersion], pending: Iterable[TableName], facts: Facts
) -> PlanStep:
    """Return the step of a stream; `pending` are the tables that are still to be computed."""
    stream_tables = [table for parameter, table in task.inputs if parameter in task.options.stream]
    pending_tables = [table for table in stream_tables if table in set(pending)]
    positions, head = facts.stream_positions(task.table), facts.head(task.table)
    names = join_names(str(table) for table in stream_tables)
    if pending_tables:
        reason = f"continues with rows that are added to {join_names(str(table) for table in pending_tables)}"
        return PlanStep(task.table, "stream", reason, is_expected=True)
    if positions is None or head is None:
        return PlanStep(task.table, "stream", f"starts with all rows of {names}")
    changed_tables = [table for table in stream_tables if positions.get(table) != inputs[table].content]
    if changed_tables:
        return PlanStep(
            task.table, "stream", f"continues with new rows of {join_names(str(table) for table in changed_tables)}"
        )
    return PlanStep(task.table, "skip", f"no new rows of {names}", head=head)
