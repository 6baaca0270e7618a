"""What to do for one stream: go on with what came to the tables that it reads, or leave it.

Pure. Its table is published by the stream itself, batch by batch, so a plan only says that it goes on.
"""

from collections.abc import Iterable, Mapping

from runnel.declare.model.flow import Task
from runnel.errors import listed
from runnel.names import TableName
from runnel.plan.facts import Facts, Head
from runnel.plan.steps import Step


def decide_stream(task: Task, inputs: Mapping[TableName, Head], pending: Iterable[TableName], facts: Facts) -> Step:
    """Return the step of a stream; `pending` are tables that it reads which are still to be computed."""
    read = [table for parameter, table in task.inputs if parameter in task.options.stream]
    waits = [table for table in read if table in set(pending)]
    reached, head = facts.reached(task.table), facts.head(task.table)
    names = listed(str(table) for table in read)
    if waits:
        told = f"goes on with what comes to {listed(str(table) for table in waits)}"
        return Step(task.table, "stream", told, is_expected=True)
    if reached is None or head is None:
        return Step(task.table, "stream", f"begins with all rows of {names}")
    moved = [table for table in read if reached.get(table) != inputs[table].content]
    if moved:
        return Step(task.table, "stream", f"goes on with new rows of {listed(str(table) for table in moved)}")
    return Step(task.table, "skip", f"no new rows of {names}", head=head)
