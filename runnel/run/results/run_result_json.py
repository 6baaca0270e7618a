"""What a run told as JSON, as values again: for whoever follows it from another process."""

from collections.abc import Mapping
from typing import Any, cast

from runnel.errors import error_of
from runnel.names import TableName
from runnel.run.results.delivery_result import Sent
from runnel.run.results.run_result import Done, Event, Ran, State

SHOWN = ("note", "start", "progress", "retry", "end")  # kinds of events that are for people
STOPPING = "stopping the run; Ctrl-C again leaves it to itself"


def event_of(found: Mapping[str, Any]) -> Event:
    """Return an event that another process has told."""
    outcome = found.get("outcome")
    return Event(
        found["kind"],
        found.get("text", ""),
        TableName.parse(found["table"]) if found.get("table") else None,
        found.get("action", ""),
        found.get("done", 0),
        found.get("total"),
        done_of(outcome) if outcome else None,
    )


def ran_of(run: str, state: str, branch: str, commit: str | None, outcome: Mapping[str, Any] | None) -> Ran:
    """Return what became of a run that has ended; raise where it failed before it did anything."""
    told = outcome or {}
    if "steps" not in told and state == "failed":
        raise error_of(told.get("error"))
    if state == "cancelled" and "steps" not in told:
        return Ran(run, "cancelled", branch, None, 0.0, ())
    return Ran(
        told.get("run"),
        cast("State", state),
        branch,
        commit,
        told.get("seconds", 0.0),
        tuple(done_of(step) for step in told.get("steps", ())),
        told.get("log"),
        tuple(sent_of(one) for one in told.get("sinks", ())),
        timeline=told.get("timeline") or {},
    )


def done_of(found: Mapping[str, Any]) -> Done:
    """Return what became of a step, as its JSON tells."""
    return Done(
        TableName.parse(found["table"]),
        found["action"],
        found["state"],
        found.get("reason", ""),
        found.get("rows"),
        found.get("seconds", 0.0),
        error_of(found["error"]) if found.get("error") else None,
        set_aside=found.get("set_aside", 0),
        warnings=tuple(found.get("warnings", ())),
        verified=found.get("verified"),
        spent=found.get("spent") or {},
        waits=found.get("waits") or {},
        spark=found.get("spark"),
    )


def sent_of(found: Mapping[str, Any]) -> Sent:
    """Return what became of a sink, as its JSON tells."""
    return Sent(**{**found, "error": error_of(found["error"]) if found.get("error") else None})
