"""Write down what happens in a run, for whoever follows it from another process; mere progress only now and then."""

import threading
import time
from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError
from runnel.lake.control import run_events

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database
    from runnel.run.results.run_result import Event

_EVERY_SECONDS = 0.5  # of progress, for each table
_PAUSE_SECONDS = 0.1


class Teller:
    """The events of one run. A thread of its own writes them, so that a slow database holds up no step."""

    def __init__(self, db: "Database", run: str) -> None:
        self._db = db
        self._run = run
        self._waiting: list[dict[str, Any]] = []
        self._guard = threading.Lock()
        self._last: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name=f"runnel events {run}", daemon=True)
        self._thread.start()

    def see(self, event: "Event") -> None:
        """Take an event of the run."""
        name, now = str(event.table), time.monotonic()
        if event.kind == "progress" and now - self._last.get(name, 0.0) < _EVERY_SECONDS:
            return
        self._last[name] = now
        self.tell(json_of(event))

    def tell(self, event: dict[str, Any]) -> None:
        """Take any event."""
        with self._guard:
            self._waiting.append(event)

    def close(self) -> None:
        """Write what is left."""
        self._ended.set()
        self._thread.join(30)

    def _write(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        with self._guard:
            taken, self._waiting = self._waiting, []
        try:
            run_events.add(self._db, self._run, taken)
        except RunnelError:  # the database is away; the log of the run has them all
            with self._guard:
                self._waiting = (taken + self._waiting)[-1000:]


def json_of(event: "Event") -> dict[str, Any]:
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
