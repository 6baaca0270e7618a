"""Place tables in the slot for as long as something reads them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.lake.leases import slots

if TYPE_CHECKING:
    from runnel.names import TableName
    from runnel.run.task_context import TaskContext


@contextmanager
def place_temporarily(context: "TaskContext", tables: "Mapping[TableName, str]") -> Iterator[None]:
    """Place tables in the slot, at these versions, while the block runs."""
    slots.place_tables(context.store.db, context.slot, tables)
    try:
        yield
    finally:
        slots.place_tables(context.store.db, context.slot, dict.fromkeys(tables))
