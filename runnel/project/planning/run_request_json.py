"""Convert run requests to and from the JSON that the queue stores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, NoReturn

from runnel.model.date_range import DateRange
from runnel.names import TableName
from runnel.project.planning.run_request import RunRequest

if TYPE_CHECKING:
    from runnel.declare.model.flow import Flow
    from runnel.lake.control.run_queue import QueueEntry


@dataclass(frozen=True)
class SubmittedRequest:
    """A run request with the message of its commit and the overrides given by `--set`."""

    request: RunRequest
    message: str | None = None
    overrides: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return the JSON that the queue stores."""
        request = self.request
        return {
            "select": list(request.select),
            "exclude": list(request.exclude),
            "full_refresh": request.full_refresh,
            "verify": request.verify,
            "days": [str(request.days.first), str(request.days.last)] if request.days else None,
            "reads_sources": request.reads_sources,
            "message": self.message,
            "set": list(self.overrides),
        }


def parse_request(queued: "QueueEntry") -> SubmittedRequest:
    """Return the request of a queue entry."""
    fields: Mapping[str, Any] = queued.request
    days = fields.get("days")
    request = RunRequest(
        _to_tuple(fields.get("select")),
        _to_tuple(fields.get("exclude")),
        queued.branch,
        bool(fields.get("full_refresh")),
        bool(fields.get("verify")),
        DateRange(date.fromisoformat(days[0]), date.fromisoformat(days[1])) if days else None,
        bool(fields.get("reads_sources", True)),
    )
    return SubmittedRequest(request, fields.get("message") or _describe_schedule(fields), _to_tuple(fields.get("set")))


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


def _describe_schedule(fields: Mapping[str, Any]) -> str | None:
    schedule, due = fields.get("schedule"), str(fields.get("due", ""))
    if schedule is None:
        return None
    return f"schedule {schedule}" + ("" if due.startswith("#") else f", {due}")


def _to_tuple(texts: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(texts or ())
