"""Runs as JSON: those of the queue, and those that a command ran by itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runnel.lake.catalog.database import moment
from runnel.run.metrics.phase_times import total

if TYPE_CHECKING:
    from runnel.lake.control.run_history import Item
    from runnel.lake.control.run_queue import Queued
    from runnel.lake.flow_state.runs import Run


def run_json(one: "Run") -> dict[str, Any]:
    """Return a run as `runnel runs` does."""
    return _shared(one, _made(one.detail) or one.detail.get("tables", []))


def entry_json(one: "Queued") -> dict[str, Any]:
    """Return an entry of the queue in the same shape, with what only the queue knows."""
    outcome = one.outcome or {}
    return {
        **_shared(one, _made(outcome)),
        "kind": one.kind,
        "cause": one.cause,
        "queued_at": one.queued_at,
        "attempt": one.attempt,
        "priority": one.priority,
        "worker": one.worker,
        "cancel_at": one.cancel_at,
        "error": outcome.get("error"),
    }


def _shared(one: "Run | Queued", tables: list[str]) -> dict[str, Any]:
    return {
        "run": one.id,
        "state": one.state,
        "branch": one.branch,
        "author": one.author,
        "started_at": one.started_at,
        "ended_at": one.ended_at,
        "seconds": seconds_between(one.started_at, one.ended_at),
        "commit": one.commit,
        "tables": tables,
    }


def _made(detail: Mapping[str, Any]) -> list[str]:
    """Return the tables that steps did something to."""
    return [step["table"] for step in detail.get("steps", ()) if step["state"] != "skipped"]


def item_json(item: "Item") -> dict[str, Any]:
    """Return a run in either shape, whichever it has."""
    return entry_json(item.entry) if item.entry is not None else run_json(item.attempts[-1])


def whole_json(item: "Item") -> dict[str, Any]:
    """Return a run with its steps, what it was made with, and all its attempts; the last one tells."""
    shown, one, attempts = item_json(item), item.entry, item.attempts
    detail = attempts[-1].detail if attempts else {}
    outcome = dict(one.outcome) if one is not None and one.outcome else None
    return {
        **shown,
        "tables": shown["tables"] or (run_json(attempts[-1])["tables"] if attempts else []),
        "code": detail.get("code_id"),
        "git": detail.get("git"),
        "packages": detail.get("packages"),
        "steps": detail.get("steps") or (outcome or {}).get("steps", []),
        **times_json(detail or outcome or {}),
        "wish": dict(one.wish) if one is not None else None,
        "outcome": outcome,
        "attempts": [run_json(attempt) for attempt in attempts],
    }


def times_json(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the time of a run went: seconds of each phase in all, and what it did one after another."""
    timeline = detail.get("timeline") or {}
    spent = total(timeline, [step.get("spent") or {} for step in detail.get("steps", ())])
    return {"spent": spent, "timeline": dict(timeline)}


def seconds_between(started_at: str | None, ended_at: str | None) -> float | None:
    """Return how long something took, or None where it has not ended."""
    if started_at is None or ended_at is None:
        return None
    return round((moment(ended_at) - moment(started_at)).total_seconds(), 3)
