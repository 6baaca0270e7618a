"""Hand a wish to a worker that is there, and follow its run as if it were computed here."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.errors import Conflict
from runnel.lake.control import backfills, run_events, run_queue, workers
from runnel.names import new_run_id
from runnel.run.results.run_result import Event, Ran, Watch
from runnel.run.results.run_result_json import SHOWN, STOPPING, event_of, ran_of
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.run_queue import Queued
    from runnel.plan.date_range import Days
    from runnel.project.planning.run_request_json import Asked

_PAUSE_SECONDS = 0.05


def is_served(lake: "Lake") -> bool:
    """Tell whether a worker of this project is there to compute."""
    return lake.store.db.read(lambda connection: workers.are_there(connection, lake.settings.name))


def submit(lake: "Lake", asked: "Asked", *, cause: str = "user") -> str:
    """Queue a wish of this user, and return its id."""
    wish, store = asked.wish, lake.store
    store.commit(wish.branch)
    trace = tracing.given(os.environ)
    wanted = asked.json() | ({"trace": trace} if trace else {})
    entry = run_queue.Entry(wanted, store.author, branch=wish.branch, cause=cause)
    found = run_queue.submit(store.db, entry)
    assert found is not None
    return found


def follow(
    lake: "Lake",
    entry: str,
    watch: Watch | None = None,
    tell: "Callable[[str], None] | None" = None,
    *,
    seen: int = 0,
) -> Ran:
    """Return what became of an entry when it has ended, telling what happens until then, after the event `seen`.

    Ctrl-C asks to stop the run, and waits for the truth; a second one leaves it alone.
    """
    follower = _Follower(lake, entry, watch, seen)
    try:
        return follower.ended()
    except KeyboardInterrupt:
        run_queue.cancel(lake.store.db, entry)
        if tell is not None:
            tell(STOPPING)
        return follower.ended()


def cancel(lake: "Lake", entry: str, *, wait: bool = True) -> "Queued":
    """Ask to stop a run, and return its entry; `wait` until it has ended."""
    db = lake.store.db
    found = run_queue.cancel(db, entry)
    if not wait or not found.is_open:
        return found
    _Follower(lake, found.id, None).wait()
    return db.read(lambda connection: run_queue.find(connection, found.id))


def retry(lake: "Lake", entry: str, watch: Watch | None = None, tell: "Callable[[str], None] | None" = None) -> Ran:
    """Run again what an entry asked for: by a worker that is there, else here."""
    from runnel.project.execution.run_project import run_project
    from runnel.project.planning.run_request_json import asked

    was = lake.store.db.read(lambda connection: run_queue.find(connection, entry))
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
    def __init__(self, lake: "Lake", entry: str, watch: Watch | None, seen: int = 0) -> None:
        self._db = lake.store.db
        self._entry = entry
        self._watch = watch
        self._seen = seen

    def ended(self) -> Ran:
        """Wait for the end, and return what became of it."""
        found = self.wait()
        return ran_of(found.run, found.state, found.branch, found.commit, found.outcome)

    def wait(self) -> "Queued":
        """Wait for the end."""
        while True:
            found = self._db.read(lambda connection: run_queue.find(connection, self._entry))
            self._show()
            if not found.is_open:
                return found
            time.sleep(_PAUSE_SECONDS)

    def _show(self) -> None:
        news = self._db.read(lambda connection: run_events.after(connection, self._entry, self._seen))
        for one in news:
            self._seen = one.number
            if self._watch is not None and one.event.get("kind") in SHOWN:
                self._watch(event_of(one.event))
