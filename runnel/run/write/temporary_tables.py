"""Tables that exist in the slot only while something reads them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.lake.leases import slots

if TYPE_CHECKING:
    from runnel.names import TableName
    from runnel.run.task_context import Context


@contextmanager
def placed(context: "Context", tables: "Mapping[TableName, str]") -> Iterator[None]:
    """Have tables in the slot, at these versions, inside of a `with`."""
    slots.place(context.store.db, context.slot, tables)
    try:
        yield
    finally:
        slots.place(context.store.db, context.slot, dict.fromkeys(tables))
