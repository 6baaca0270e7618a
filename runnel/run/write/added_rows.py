"""Read the rows that a write has just added to a table, as a frame of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.lake.diff.file_delta import compute_file_delta
from runnel.lake.iceberg.partial_tables import stage_partial_table
from runnel.lake.leases import slots
from runnel.names import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.run.task_context import TaskContext


@contextmanager
def open_added_rows(context: "TaskContext", table: TableName, before: str, after: str) -> "Iterator[DataFrame]":
    """Yield the rows of the files that only the later of two versions has, whichever version the slot has now."""
    file_delta = compute_file_delta(context.store, before, after)
    name = TableName(table.layer, f"{table.name}__written")
    slots.place_tables(
        context.store.db, context.slot, {name: stage_partial_table(context.store, after, file_delta.added)}
    )
    try:
        yield context.session.table(context.identifier(name))
    finally:
        slots.place_tables(context.store.db, context.slot, {name: None})
