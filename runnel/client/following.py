"""Hand a wish to a worker that is there, and follow its run as if it were computed here."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from runnel.errors import Conflict, error_of
from runnel.lake import backfills, events, queue, workers
from runnel.names import TableName, new_run_id
from runnel.run.report import Done, Event, Ran, State, Watch
from runnel.run.sent import Sent
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.client.wishes import Asked
    from runnel.lake.queue import Queued
    from runnel.plan.days import Days

_PAUSE_SECONDS = 0.05


def is_served(lake: "Lake") -> bool:
    """Tell whether a worker of this project is there to compute."""
    there = lake.store.db.read(lambda connection: workers.present(connection, workers.WORKER))
    return any(one.detail.get("project") == lake.settings.name and one.state != "stopping" for one in there)


def submit(lake: "Lake", asked: "Asked", *, cause: str = "user") -> str:
    """Queue a wish of this user, and return its id."""
    wish, store = asked.wish, lake.store
    store.commit(wish.branch)
    trace = tracing.given(os.environ)
    wanted = asked.json() | ({"trace": trace} if trace else {})
    entry = queue.Entry(wanted, store.author, branch=wish.branch, cause=cause)
    found = queue.submit(store.db, entry)
    assert found is not None
    return found


def follow(lake: "Lake", entry: str, watch: Watch | None = None, tell: "Callable[[str], None] | None" = None) -> Ran:
    """Return what became of an entry when it has ended, telling what happens until then.

    Ctrl-C asks to stop the run, and waits for the truth; a second one leaves it alone.
    """
    follower = _Follower(lake, entry, watch)
    try:
        return follower.ended()
    except KeyboardInterrupt:
        queue.cancel(lake.store.db, entry)
        if tell is not None:
            tell("stopping the run; Ctrl-C again leaves it to itself")
        return follower.ended()


def cancel(lake: "Lake", entry: str, *, wait: bool = True) -> "Queued":
    """Ask to stop a run, and return its entry; `wait` until it has ended."""
    db = lake.store.db
    found = queue.cancel(db, entry)
    if not wait or not found.is_open:
        return found
    _Follower(lake, found.id, None).wait()
    return db.read(lambda connection: queue.find(connection, found.id))


def retry(lake: "Lake", entry: str, watch: Watch | None = None, tell: "Callable[[str], None] | None" = None) -> Ran:
    """Run again what an entry asked for: by a worker that is there, else here."""
    from runnel.client.running import run_project
    from runnel.client.wishes import asked

    was = lake.store.db.read(lambda connection: queue.find(connection, entry))
    if was.is_open:
        raise Conflict("RUN_OPEN", f"run {was.id} is still {was.state}", fix=f"`runnel cancel {was.id}` stops it")
    wanted = asked(was)
    if is_served(lake):
        return follow(lake, submit(lake, wanted), watch, tell)
    return run_project(lake, wanted.wish, message=wanted.message, watch=watch)


def submit_backfill(lake: "Lake", asked: "Asked", chunks: "Sequence[Days]") -> str:
    """Queue the chunks of a backfill, and return its id."""
    name, store = new_run_id(datetime.now(UTC)), lake.store
    store.commit(asked.wish.branch)
    wishes = [replace(asked, wish=replace(asked.wish, days=days), message=f"backfill {days}").json() for days in chunks]
    backfills.make(store.db, name, wishes, store.author, asked.wish.branch)
    return name


def follow_backfill(
    lake: "Lake", name: str, watch: Watch | None = None, tell: "Callable[[str], None] | None" = None
) -> "list[Ran]":
    """Return what became of each chunk that was begun, when the last has ended; Ctrl-C stops it."""
    chunks, done = lake.store.db.read(lambda connection: backfills.find(connection, name)).chunks, list[Ran]()
    for number, chunk in enumerate(chunks, 1):
        if watch is not None and len(chunks) > 1:
            watch(Event("note", f"chunk {number} of {len(chunks)}: {' to '.join(chunk.wish['days'])}"))
        try:
            done.append(_Follower(lake, chunk.id, watch).ended())
        except KeyboardInterrupt:
            backfills.cancel(lake.store.db, name)
            if tell is not None:
                tell("stopping the backfill; Ctrl-C again leaves it to itself")
            done.append(_Follower(lake, chunk.id, watch).ended())
        if done[-1].state in ("failed", "cancelled"):
            break
    return done


class _Follower:
    def __init__(self, lake: "Lake", entry: str, watch: Watch | None) -> None:
        self._db = lake.store.db
        self._entry = entry
        self._watch = watch
        self._seen = 0

    def ended(self) -> Ran:
        """Wait for the end, and return what became of it."""
        found = self.wait()
        return ran_of(found.run, found.state, found.branch, found.commit, found.outcome)

    def wait(self) -> "Queued":
        """Wait for the end."""
        while True:
            found = self._db.read(lambda connection: queue.find(connection, self._entry))
            self._show()
            if not found.is_open:
                return found
            time.sleep(_PAUSE_SECONDS)

    def _show(self) -> None:
        news = self._db.read(lambda connection: events.after(connection, self._entry, self._seen))
        for one in news:
            self._seen = one.number
            if self._watch is not None and one.event.get("kind") in ("note", "start", "progress", "retry", "end"):
                self._watch(event_of(one.event))


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
