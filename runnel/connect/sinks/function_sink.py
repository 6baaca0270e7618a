"""A function as a sink: it is called with the rows that came, commit by commit."""

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.connect.sinks import failpoints
from runnel.connect.sinks.sink_target import Forgetful
from runnel.declare.model.endpoints import Function
from runnel.declare.model.flow import Sink
from runnel.errors import RunnelError, Unreachable

if TYPE_CHECKING:
    import pyarrow as pa

    from runnel.connect.sinks.table_change import Change as Going


@dataclass(frozen=True)
class Change:
    """What a function that asks for `change` gets. `key` is the same when the same change is delivered again.

    `gone` are the rows that went; one that changed is in both. With `is_whole` the rows are all that the table has.
    """

    table: str
    commit: str
    key: str
    is_whole: bool
    gone: "pa.Table" = field(repr=False)


class FunctionOutlet(Forgetful):
    """A user's function."""

    def __init__(self, sink: Sink, target: Function) -> None:
        self._sink = sink
        self._function = target.function
        self._takes_change = "change" in inspect.signature(target.function).parameters

    def take(self, change: "Going") -> int:
        """Call the function; one that does not ask for `change` is called only where rows came."""
        came, went = change.sizes
        if self._takes_change:
            gone = change.read(f"FROM {change.gone()}")
            told = Change(str(change.table), change.commit, change.key, change.is_whole, gone)
            self._call(change.read(f"FROM {change.came()}"), change=told)
        elif came:
            self._call(change.read(f"FROM {change.came()}"))
        failpoints.reach(failpoints.SENDING)
        return came + went if self._takes_change else came

    def _call(self, rows: "pa.Table", **more: Change) -> None:
        try:
            self._function(rows, **more)
        except RunnelError:
            raise
        except Exception as error:
            name = getattr(self._function, "__name__", "function")
            what = f"`{name}` failed: {type(error).__name__}: {error}"
            fix = "correct it, or what it calls; the next run goes on"
            # Nobody knows whether the same may pass later, so that it is tried as if it did.
            raise Unreachable("SINK_FUNCTION", what, at=str(self._sink.place), fix=fix) from error
