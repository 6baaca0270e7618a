"""Record the events of a run in the catalog for other processes that follow it; progress events are throttled."""

import threading
import time
from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError
from runnel.lake.control import run_events

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database
    from runnel.run.results.run_result import Event

_PROGRESS_SECONDS = 0.5  # between progress events of one table
_PAUSE_SECONDS = 0.1


class EventRecorder:
    """Records the events of one run. A separate thread writes them, so that a slow database delays no step."""

    def __init__(self, db: "Database", run: str) -> None:
        self._db = db
        self._run = run
        self._pending: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._last_progress_at: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_loop, name=f"runnel events {run}", daemon=True)
        self._thread.start()

    def record_event(self, event: "Event") -> None:
        """Record an event of the run, unless it is progress that follows too soon."""
        name, now = str(event.table), time.monotonic()
        if event.kind == "progress" and now - self._last_progress_at.get(name, 0.0) < _PROGRESS_SECONDS:
            return
        self._last_progress_at[name] = now
        self.record_json(event_to_json(event))

    def record_json(self, event: dict[str, Any]) -> None:
        """Record an event that is JSON already."""
        with self._lock:
            self._pending.append(event)

    def close(self) -> None:
        """Write the pending events, and end the thread."""
        self._ended.set()
        self._thread.join(30)

    def _write_loop(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            batch, self._pending = self._pending, []
        try:
            run_events.add(self._db, self._run, batch)
        except RunnelError:  # the database is unreachable; the run's log has all events
            with self._lock:
                self._pending = (batch + self._pending)[-1000:]


def event_to_json(event: "Event") -> dict[str, Any]:
    """Return an event as JSON."""
    return {
        "kind": event.kind,
        "text": event.text,
        "table": str(event.table) if event.table else None,
        "action": event.action,
        "done": event.done,
        "total": event.total,
        "outcome": event.outcome.json() if event.outcome else None,
    }
