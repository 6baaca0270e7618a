"""Provide the added and removed rows of inputs as tables in the slot, which Spark reads instead of the whole inputs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.lake.diff.compaction_delta import compute_change
from runnel.lake.diff.file_delta import find_differing_files
from runnel.lake.iceberg.partial_tables import stage_partial_table
from runnel.lake.leases import slots
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.run.task_context import TaskContext, TaskRun

Identifiers = dict[TableName, str]


@contextmanager
def open_changed_inputs(
    task_run: "TaskRun", context: "TaskContext"
) -> "Iterator[tuple[Identifiers, Identifiers | None]]":
    """Yield the identifiers of the tables with added rows, and of those with removed rows if there are any.

    Both are empty for an input that did not change.
    """
    store, task, step = task_run.run_context.store, task_run.task, task_run.step
    assert step.base is not None
    added_tables: dict[TableName, TableName] = {}
    removed_tables: dict[TableName, TableName] = {}
    temporary_tables: dict[TableName, str | None] = {}
    has_removed_rows = False
    for table in task.input_tables:
        before, after = step.base.inputs[table].location, task_run.inputs[table].location
        file_delta = compute_change(store, table, before, after)
        removed_entries, added_entries = (
            find_differing_files(store, before, after, file_delta) if table in step.changed else ((), ())
        )
        has_removed_rows = has_removed_rows or bool(removed_entries)
        for table_names, location, entries, label in (
            (added_tables, after, added_entries, "came"),
            (removed_tables, before, removed_entries, "went"),
        ):
            table_names[table] = TableName(
                table.layer, f"{table.name}__{label}_for_{task.table.layer}_{task.table.name}"
            )
            temporary_tables[table_names[table]] = stage_partial_table(store, location, entries)
    slots.place_tables(store.db, context.slot, temporary_tables)
    try:
        yield (
            _to_identifiers(context, added_tables),
            _to_identifiers(context, removed_tables) if has_removed_rows else None,
        )
    finally:
        slots.place_tables(store.db, context.slot, dict.fromkeys(temporary_tables))


def _to_identifiers(context: "TaskContext", table_names: dict[TableName, TableName]) -> Identifiers:
    return {table: context.identifier(name) for table, name in table_names.items()}
