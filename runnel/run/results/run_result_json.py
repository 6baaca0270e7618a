"""Parse the JSON of events and run results, for clients that follow a run from another process."""

from collections.abc import Mapping
from typing import Any, cast

from runnel.errors import error_from_json
from runnel.model.work_place import WorkPlace
from runnel.names import TableName
from runnel.run.results.delivery_result import parse_delivery_result
from runnel.run.results.run_result import Event, RunResult, RunState, StepResult


def parse_event(event_json: Mapping[str, Any]) -> Event:
    """Parse an event that another process sent."""
    outcome = event_json.get("outcome")
    return Event(
        event_json["kind"],
        event_json.get("text", ""),
        TableName.parse(event_json["table"]) if event_json.get("table") else None,
        event_json.get("action", ""),
        event_json.get("done", 0),
        event_json.get("total"),
        parse_step_result(outcome) if outcome else None,
    )


def parse_run_result(
    run: str, state: str, branch: str, commit: str | None, outcome: Mapping[str, Any] | None
) -> RunResult:
    """Parse the result of a run that has ended; raise if it failed before its first step."""
    result_json = outcome or {}
    if "steps" not in result_json and state == "failed":
        raise error_from_json(result_json.get("error"))
    if state == "cancelled" and "steps" not in result_json:
        return RunResult(run, "cancelled", branch, None, 0.0, ())
    return RunResult(
        result_json.get("run"),
        cast("RunState", state),
        branch,
        commit,
        result_json.get("seconds", 0.0),
        tuple(parse_step_result(step) for step in result_json.get("steps", ())),
        result_json.get("log"),
        tuple(parse_delivery_result(delivery) for delivery in result_json.get("sinks", ())),
        timeline=result_json.get("timeline") or {},
    )


def parse_step_result(step_json: Mapping[str, Any]) -> StepResult:
    """Parse the result of a step."""
    return StepResult(
        TableName.parse(step_json["table"]),
        step_json["action"],
        step_json["state"],
        step_json.get("reason", ""),
        step_json.get("rows"),
        step_json.get("seconds", 0.0),
        error_from_json(step_json["error"]) if step_json.get("error") else None,
        set_aside=step_json.get("set_aside", 0),
        warnings=tuple(step_json.get("warnings", ())),
        verified=step_json.get("verified"),
        spent=step_json.get("spent") or {},
        waits=step_json.get("waits") or {},
        spark=step_json.get("spark"),
        place=WorkPlace(**step_json["place"]) if step_json.get("place") else None,
    )
