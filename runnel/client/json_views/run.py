"""Runs as JSON: those of the queue, and those that a command executed itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runnel.lake.catalog.database import parse_time
from runnel.run.metrics.phase_times import sum_run_phases

if TYPE_CHECKING:
    from runnel.lake.control.queue_entry import QueueEntry
    from runnel.lake.control.run_history import RunRecord
    from runnel.lake.flow_state.runs import Run


def run_json(run: "Run") -> dict[str, Any]:
    """Return a run as `runnel runs` does."""
    return _shared_json(run, _list_changed_tables(run.detail) or run.detail.get("tables", []))


def entry_json(entry: "QueueEntry") -> dict[str, Any]:
    """Return a queue entry with the same fields, and those that only the queue has."""
    outcome = entry.outcome or {}
    return {
        **_shared_json(entry, _list_changed_tables(outcome)),
        "kind": entry.kind,
        "cause": entry.cause,
        "queued_at": entry.queued_at,
        "attempt": entry.attempt,
        "priority": entry.priority,
        "worker": entry.worker,
        "cancel_at": entry.cancel_at,
        "error": outcome.get("error"),
    }


def _shared_json(run: "Run | QueueEntry", tables: list[str]) -> dict[str, Any]:
    return {
        "run": run.id,
        "state": run.state,
        "branch": run.branch,
        "author": run.author,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "seconds": seconds_between(run.started_at, run.ended_at),
        "commit": run.commit,
        "tables": tables,
        "scheduled_at": run.scheduled_at,
    }


def _list_changed_tables(detail: Mapping[str, Any]) -> list[str]:
    """Return the tables of all steps that were not skipped."""
    return [step["table"] for step in detail.get("steps", ()) if step["state"] != "skipped"]


def item_json(item: "RunRecord") -> dict[str, Any]:
    """Return a run from its queue entry if it has one, else from its last attempt."""
    if item.entry is None:
        return run_json(item.attempts[-1])
    seconds = seconds_between(item.started_at, item.entry.ended_at)
    return {**entry_json(item.entry), "started_at": item.started_at, "seconds": seconds}


def attempt_json(attempt: "Run") -> dict[str, Any]:
    """Return an attempt of a run: its number, worker and error, and its log file below the project's `.runnel`."""
    step_errors = [step["error"] for step in attempt.detail.get("steps", ()) if step.get("error")]
    return {
        **run_json(attempt),
        "attempt": attempt.detail.get("attempt", 1),
        "worker": attempt.detail.get("worker"),
        "error": attempt.detail.get("error") or (step_errors[0] if step_errors else None),
        "log": f"logs/runs/{attempt.id}.log",
    }


def run_detail_json(item: "RunRecord") -> dict[str, Any]:
    """Return a run with its steps, code, git commit, packages (of the last attempt) and all its attempts."""
    summary, entry, attempts = item_json(item), item.entry, item.attempts
    detail = attempts[-1].detail if attempts else {}
    outcome = dict(entry.outcome) if entry is not None and entry.outcome else None
    return {
        **summary,
        "tables": summary["tables"] or (run_json(attempts[-1])["tables"] if attempts else []),
        "code": detail.get("code_id"),
        "git": detail.get("git"),
        "packages": detail.get("packages"),
        "steps": detail.get("steps") or (outcome or {}).get("steps", []),
        **times_json(detail or outcome or {}),
        "wish": entry.request_json if entry is not None else None,
        "outcome": outcome,
        "attempts": [attempt_json(attempt) for attempt in attempts],
    }


def times_json(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a run spent its time: total seconds of each phase, and the timeline."""
    timeline = detail.get("timeline") or {}
    spent = sum_run_phases(timeline, [step.get("spent") or {} for step in detail.get("steps", ())])
    return {"spent": spent, "timeline": dict(timeline)}


def seconds_between(started_at: str | None, ended_at: str | None) -> float | None:
    """Return how long something took, or None if it has not ended."""
    if started_at is None or ended_at is None:
        return None
    return round((parse_time(ended_at) - parse_time(started_at)).total_seconds(), 3)
