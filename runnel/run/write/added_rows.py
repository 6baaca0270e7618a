"""The rows that a write has just added to a table of the slot, as a frame of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.lake.diff.file_delta import delta
from runnel.lake.iceberg.partial_tables import side
from runnel.lake.leases import slots
from runnel.names import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.run.task_context import Context


@contextmanager
def added_rows(context: "Context", table: TableName, before: str, after: str) -> "Iterator[DataFrame]":
    """Yield the rows of the files that only the later of two versions has; wherever the table itself is meanwhile."""
    found = delta(context.store, before, after)
    name = TableName(table.layer, f"{table.name}__written")
    slots.place(context.store.db, context.slot, {name: side(context.store, after, found.added)})
    try:
        yield context.session.table(context.identifier(name))
    finally:
        slots.place(context.store.db, context.slot, {name: None})
