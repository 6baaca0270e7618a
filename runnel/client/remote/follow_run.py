"""Follow a run of a service until it has ended, as if it were computed here."""

import time
from typing import TYPE_CHECKING, Any

from runnel.lake.control.run_queue import OPEN
from runnel.run.results.run_result_json import SHOWN, event_of, ran_of

if TYPE_CHECKING:
    from runnel.client.remote.connection import Connection
    from runnel.run.results.run_result import Ran, Watch

_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)  # the longer it takes, the less often it is asked


def follow(connection: "Connection", run: str, watch: "Watch | None" = None) -> "Ran":
    """Return what became of a run when it has ended, telling what happens until then.

    Ctrl-C asks to stop the run, and waits for the truth; a second one leaves it alone. A service that goes away
    meanwhile is waited for.
    """
    follower = Follower(connection, run, watch)
    try:
        found = follower.wait()
    except KeyboardInterrupt:
        connection.post(f"/runs/{run}/cancel")
        found = follower.wait()
    return ran(found)


def ran(found: "dict[str, Any]") -> "Ran":
    """Return what became of a run that has ended; raise where it failed before it did anything."""
    return ran_of(found["run"], found["state"], found["branch"], found["commit"], found["outcome"])


class Follower:
    """Asks for a run, and for what happened in it since."""

    def __init__(self, connection: "Connection", run: str, watch: "Watch | None" = None) -> None:
        self._connection = connection
        self._run = run
        self._watch = watch
        self._seen = 0

    def wait(self) -> "dict[str, Any]":
        """Return the run when it has ended."""
        number = 0
        while True:
            found: dict[str, Any] = self._connection.get(f"/runs/{self._run}")
            if self._watch is not None:
                self._show(self._watch)
            if found["state"] not in OPEN:
                return found
            time.sleep(_PAUSES[min(number // 4, len(_PAUSES) - 1)])
            number += 1

    def _show(self, watch: "Watch") -> None:
        for one in self._connection.pages(f"/runs/{self._run}/events", "after", after=self._seen):
            self._seen = int(one["number"])
            if one.get("kind") in SHOWN:
                watch(event_of(one))
