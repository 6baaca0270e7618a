"""Hand a wish to a worker that is there, and follow its run as if it were computed here."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from runnel.errors import Cancelled, Mistake, RunnelError, Unreachable
from runnel.lake import backfills, events, queue, workers
from runnel.names import TableName, new_run_id
from runnel.run.report import Done, Event, Ran, State, Watch
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.client.wishes import Asked
    from runnel.lake.queue import Queued
    from runnel.plan.days import Days

_PAUSE_SECONDS = 0.05
_KINDS = {"Mistake": Mistake, "Unreachable": Unreachable}


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
        """Wait for the end."""
        while True:
            found = self._db.read(lambda connection: queue.find(connection, self._entry))
            self._show()
            if not found.is_open:
                return ran_of(found)
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


def ran_of(found: "Queued") -> Ran:
    """Return what became of an entry that has ended; raise where it failed before it did anything."""
    outcome = found.outcome or {}
    if "steps" not in outcome and found.state == "failed":
        raise error_of(outcome.get("error"))
    if found.state == "cancelled" and "steps" not in outcome:
        return Ran(found.run, "cancelled", found.branch, None, 0.0, ())
    steps = tuple(done_of(step) for step in outcome.get("steps", ()))
    state = cast("State", found.state)
    return Ran(
        outcome.get("run"),
        state,
        found.branch,
        found.commit,
        outcome.get("seconds", 0.0),
        steps,
        outcome.get("log"),
        timeline=outcome.get("timeline") or {},
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


def error_of(found: Mapping[str, Any] | None) -> RunnelError:
    """Return an error that another process has told."""
    if found is None:
        return RunnelError("RUN_LOST", "nobody said how the run ended", fix="run it again")
    if found.get("code") == "CANCELLED":
        return Cancelled()
    kind = _KINDS.get(str(found.get("kind")), RunnelError)
    return kind(str(found["code"]), str(found["what"]), at=found.get("at"), fix=found.get("fix"))
