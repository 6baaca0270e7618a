"""The rows of inputs that came and went, as tables in the slot that Spark reads instead of the whole."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.lake.diff.compaction_delta import change
from runnel.lake.diff.file_delta import rows_apart
from runnel.lake.iceberg.partial_tables import side
from runnel.lake.leases import slots
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.plan.facts import Head
    from runnel.plan.steps import Step
    from runnel.run.run_context import Work
    from runnel.run.task_context import Context

Names = dict[TableName, str]


@contextmanager
def parts(
    work: "Work", task: "Task", step: "Step", inputs: "Mapping[TableName, Head]", context: "Context"
) -> "Iterator[tuple[Names, Names | None]]":
    """Yield, for each input, the table of rows that came, and that of rows that went if any did.

    An input that did not change has no rows in either.
    """
    assert step.base is not None
    came: dict[TableName, TableName] = {}
    went: dict[TableName, TableName] = {}
    placed: dict[TableName, str | None] = {}
    lost = False
    for table in task.reads:
        before, after = step.base.inputs[table].location, inputs[table].location
        found = change(work.store, table, before, after)
        older, newer = rows_apart(work.store, before, after, found) if table in step.changed else ((), ())
        lost = lost or bool(older)
        for names, location, entries, word in ((came, after, newer, "came"), (went, before, older, "went")):
            names[table] = TableName(table.layer, f"{table.name}__{word}_for_{task.table.layer}_{task.table.name}")
            placed[names[table]] = side(work.store, location, entries)
    slots.place(work.store.db, context.slot, placed)
    try:
        yield _named(context, came), _named(context, went) if lost else None
    finally:
        slots.place(work.store.db, context.slot, dict.fromkeys(placed))


def _named(context: "Context", names: dict[TableName, TableName]) -> Names:
    return {table: context.identifier(name) for table, name in names.items()}
