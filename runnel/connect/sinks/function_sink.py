"""Deliver a table to a function: it is called with the added rows, commit by commit."""

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.sink_target import DeliveredRows, StatelessSink
from runnel.declare.model.endpoints import Function
from runnel.declare.model.flow import Sink
from runnel.errors import RunnelError, Unreachable

if TYPE_CHECKING:
    import pyarrow as pa

    from runnel.connect.sinks.table_change import OutgoingChange


@dataclass(frozen=True)
class DeliveredChange:
    """The argument `change` of a user's function. `key` is the same if the same change is delivered again.

    `removed` are the removed rows; a changed row is both added and removed. With `is_whole` the rows are all rows.
    """

    table: str
    commit: str
    key: str
    is_whole: bool
    removed: "pa.Table" = field(repr=False)


class FunctionSink(StatelessSink):
    """A user's function."""

    def __init__(self, sink: Sink, target: Function) -> None:
        self._sink = sink
        self._function = target.function
        self._takes_change = "change" in inspect.signature(target.function).parameters

    def deliver(self, change: "OutgoingChange") -> DeliveredRows:
        """Call the function; without a parameter `change` it is called only if rows were added."""
        added_count, removed_count = change.added_and_removed
        if self._takes_change:
            removed_rows = change.read_table(f"FROM {change.removed_view()}")
            delivered_change = DeliveredChange(
                str(change.table), change.commit, change.key, change.is_full, removed_rows
            )
            self._call_function(change.read_table(f"FROM {change.added_view()}"), change=delivered_change)
        elif added_count:
            self._call_function(change.read_table(f"FROM {change.added_view()}"))
        failpoints.reach(failpoints.SENDING)
        return DeliveredRows(added_count + removed_count if self._takes_change else added_count)

    def _call_function(self, rows: "pa.Table", **extra_arguments: DeliveredChange) -> None:
        try:
            self._function(rows, **extra_arguments)
        except RunnelError:
            raise
        except Exception as error:
            name = getattr(self._function, "__name__", "function")
            what = f"`{name}` failed: {type(error).__name__}: {error}"
            fix = "correct it, or what it calls; the next run continues"
            # It is unknown whether the failure is transient, so it is retried as if it were.
            raise Unreachable("SINK_FUNCTION", what, at=str(self._sink.place), fix=fix) from error
