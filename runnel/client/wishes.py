"""Wishes as the queue keeps them: what to run, and how, as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, NoReturn

from runnel.client.planning import Wish
from runnel.names import TableName
from runnel.plan.days import Days

if TYPE_CHECKING:
    from runnel.declare.flow import Flow
    from runnel.lake.queue import Queued


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


def without_streams(wish: Wish, flow: "Flow") -> Wish:
    """Return a wish without the streams that a worker keeps going anyway."""
    streams = tuple(str(task.table) for task in flow.tasks.values() if task.options.stream)
    return replace(wish, exclude=(*wish.exclude, *streams))


def streams_in(wish: Wish, flow: "Flow") -> tuple[TableName, ...]:
    """Return the streams that a wish selects; none where only the lake can tell what is selected."""
    from runnel.plan.graph import Graph
    from runnel.plan.selection import select

    def unknown() -> NoReturn:
        raise _Unknown

    try:
        selected = select(Graph(flow), flow, wish.select, wish.exclude, unknown)
    except _Unknown:
        return ()
    return tuple(table for table in sorted(selected) if table in flow.tasks and flow.tasks[table].options.stream)


class _Unknown(Exception):
    """What is modified is not known here."""


def _message(found: Mapping[str, Any]) -> str | None:
    schedule, due = found.get("schedule"), str(found.get("due", ""))
    if schedule is None:
        return None
    return f"schedule {schedule}" + ("" if due.startswith("#") else f", {due}")


def _texts(found: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(found or ())
