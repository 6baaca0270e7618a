"""Wishes as the queue keeps them: what to run, and how, as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, NoReturn

from runnel.names import TableName
from runnel.plan.date_range import Days
from runnel.project.planning.run_request import Wish

if TYPE_CHECKING:
    from runnel.declare.model.flow import Flow
    from runnel.lake.control.run_queue import Queued


@dataclass(frozen=True)
class Asked:
    """A wish with what goes beside it: what its commit says, and values of parameters."""

    wish: Wish
    message: str | None = None
    overrides: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return what the queue keeps."""
        wish = self.wish
        return {
            "select": list(wish.select),
            "exclude": list(wish.exclude),
            "full_refresh": wish.full_refresh,
            "verify": wish.verify,
            "days": [str(wish.days.first), str(wish.days.last)] if wish.days else None,
            "reads_sources": wish.reads_sources,
            "message": self.message,
            "set": list(self.overrides),
        }


def asked(queued: "Queued") -> Asked:
    """Return what an entry of the queue asks for."""
    found: Mapping[str, Any] = queued.wish
    days = found.get("days")
    wish = Wish(
        _texts(found.get("select")),
        _texts(found.get("exclude")),
        queued.branch,
        bool(found.get("full_refresh")),
        bool(found.get("verify")),
        Days(date.fromisoformat(days[0]), date.fromisoformat(days[1])) if days else None,
        bool(found.get("reads_sources", True)),
    )
    return Asked(wish, found.get("message") or _message(found), _texts(found.get("set")))


def without_streams(wish: Wish, flow: "Flow") -> tuple[Wish | None, tuple[TableName, ...]]:
    """Return a wish without the streams that a worker keeps going anyway, None where it is for nothing else.

    Also return those that it selects: none where only the lake can tell what is selected.
    """
    from runnel.plan.graph import Graph
    from runnel.plan.selection import select

    def unknown() -> NoReturn:
        raise _Unknown

    streams = tuple(sorted(table for table, task in flow.tasks.items() if task.options.stream))
    if not streams:
        return wish, ()
    rest = replace(wish, exclude=(*wish.exclude, *(str(table) for table in streams)))
    try:
        selected = select(Graph(flow), flow, wish.select, wish.exclude, unknown)
    except _Unknown:
        return rest, ()
    return rest if selected.difference(streams) else None, tuple(table for table in streams if table in selected)


class _Unknown(Exception):
    """What is modified is not known here."""


def _message(found: Mapping[str, Any]) -> str | None:
    schedule, due = found.get("schedule"), str(found.get("due", ""))
    if schedule is None:
        return None
    return f"schedule {schedule}" + ("" if due.startswith("#") else f", {due}")


def _texts(found: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(found or ())
