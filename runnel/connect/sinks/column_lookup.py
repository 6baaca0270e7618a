"""Check the columns that a sink names: its key, or the columns that partition its folders."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runnel.errors import Mistake, did_you_mean

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import OutgoingChange
    from runnel.declare.model.flow import Sink


def check_columns(sink: "Sink", change: "OutgoingChange", names: Sequence[str]) -> None:
    """Raise if the table lacks one of these columns; a dropped table without columns is no mistake."""
    existing_names = [column.name for column in change.columns]
    for name in names if existing_names else ():
        if name not in existing_names:
            what = f"`{change.table}` has no column `{name}`" + did_you_mean(name, existing_names)
            raise Mistake(
                "SINK_COLUMN_UNKNOWN", what, at=str(sink.place), fix=f"choose among {', '.join(existing_names)}"
            )
