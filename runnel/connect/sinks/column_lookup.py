"""Columns that a sink names: its key, or what its folders are called after."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel.errors import Mistake, nearest

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import Change
    from runnel.declare.model.flow import Sink


def check_columns(sink: "Sink", change: "Change", names: Sequence[str]) -> None:
    """Raise where the table has not all of these columns; that a table which is gone has none is no mistake."""
    known = [column.name for column in change.columns]
    for name in names if known else ():
        if name not in known:
            close = nearest(name, known)
            what = f"`{change.table}` has no column `{name}`" + (f"; close: `{close}`" if close else "")
            raise Mistake("SINK_COLUMN_UNKNOWN", what, at=str(sink.place), fix=f"choose among {', '.join(known)}")
