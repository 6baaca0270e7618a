"""Follow a run of a service until it has ended, as if this process computed it."""

import time
from typing import TYPE_CHECKING, Any

from runnel.lake.control.queue_entry import OPEN_STATES
from runnel.run.results.run_result_json import DISPLAYED_EVENTS, parse_event, parse_run_result

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection
    from runnel.run.results.run_result import ProgressCallback, RunResult

_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)  # the longer the run takes, the less often it is polled


def follow_run(connection: "ServiceConnection", run: str, watch: "ProgressCallback | None" = None) -> "RunResult":
    """Wait until a run has ended and return its result, passing its events to `watch`.

    Ctrl-C cancels the run and waits until it has ended; a second one leaves it alone. If the service becomes
    unreachable meanwhile, this waits for it.
    """
    follower = RemoteRunFollower(connection, run, watch)
    try:
        run_json = follower.wait_for_end()
    except KeyboardInterrupt:
        connection.post(f"/runs/{run}/cancel")
        run_json = follower.wait_for_end()
    return read_ended_run(run_json)


def read_ended_run(run_json: "dict[str, Any]") -> "RunResult":
    """Return the result of a run that has ended; raise if it failed before it did anything."""
    return parse_run_result(
        run_json["run"], run_json["state"], run_json["branch"], run_json["commit"], run_json["outcome"]
    )


class RemoteRunFollower:
    """Polls a run and its new events."""

    def __init__(self, connection: "ServiceConnection", run: str, watch: "ProgressCallback | None" = None) -> None:
        self._connection = connection
        self._run = run
        self._watch = watch
        self._last_event = 0

    def wait_for_end(self) -> "dict[str, Any]":
        """Return the run when it has ended."""
        poll_count = 0
        while True:
            run_json: dict[str, Any] = self._connection.get(f"/runs/{self._run}")
            if self._watch is not None:
                self._report_events(self._watch)
            if run_json["state"] not in OPEN_STATES:
                return run_json
            time.sleep(_PAUSES[min(poll_count // 4, len(_PAUSES) - 1)])
            poll_count += 1

    def _report_events(self, watch: "ProgressCallback") -> None:
        for event in self._connection.iter_items(f"/runs/{self._run}/events", "after", after=self._last_event):
            self._last_event = int(event["number"])
            if event.get("kind") in DISPLAYED_EVENTS:
                watch(parse_event(event))
