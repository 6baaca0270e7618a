"""Leave the streams out of a run request: a worker runs them continuously."""

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from runnel.model.run_request import RunRequest
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.declare.model.flow import Flow


def without_streams(request: RunRequest, flow: "Flow") -> tuple[RunRequest | None, tuple[TableName, ...]]:
    """Return a request without the streams, which a worker runs continuously; None if it selects nothing else.

    Also return the streams that it selects: none if the selection depends on the state of the lake.
    """
    from runnel.plan.graph import Graph
    from runnel.plan.selection import select_tables

    def raise_unknown() -> NoReturn:
        raise _SelectionUnknown

    streams = tuple(sorted(table for table, task in flow.tasks.items() if task.options.stream))
    if not streams:
        return request, ()
    remaining = replace(request, exclude=(*request.exclude, *(str(table) for table in streams)))
    try:
        selected = select_tables(Graph(flow), flow, request.select, request.exclude, raise_unknown)
    except _SelectionUnknown:
        return remaining, ()
    return remaining if selected.difference(streams) else None, tuple(table for table in streams if table in selected)


class _SelectionUnknown(Exception):
    """The selection depends on which tasks are modified, which is not known here."""
