"""The events of a run of a service over REST. If the service becomes unreachable meanwhile, requests wait for it."""

from collections.abc import Generator, Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING

from runnel.lake.control.queue_entry import OPEN_STATES
from runnel.project.following.run_follower import FinishedRun, FollowedItem, NumberedEvent, poll_run

if TYPE_CHECKING:
    from runnel.client.remote.connection import ServiceConnection

_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)  # the longer the run takes, the less often it is polled
_POLLS_PER_PAUSE = 4


class RestEventSource:
    """The events of a run. `cancel_path` replaces the route that cancels it: a chunk is cancelled with its backfill.

    Without `reads_events`, only the end is read.
    """

    def __init__(
        self, connection: "ServiceConnection", run: str, *, reads_events: bool, cancel_path: str | None = None
    ) -> None:
        self._connection, self._run, self._reads_events = connection, run, reads_events
        self._cancel_path = cancel_path or f"/runs/{run}/cancel"

    def follow(self, after: int) -> Generator[FollowedItem, None, None]:
        """Yield events and the end."""
        growing_pauses = chain.from_iterable(repeat(pause, _POLLS_PER_PAUSE) for pause in _PAUSES)
        return poll_run(self._read_end, self._read_events, after, chain(growing_pauses, repeat(_PAUSES[-1])))

    def cancel(self) -> None:
        """Cancel the run."""
        self._connection.post(self._cancel_path)

    def _read_end(self) -> FinishedRun | None:
        run_json = self._connection.get(f"/runs/{self._run}")
        return None if run_json["state"] in OPEN_STATES else FinishedRun.from_json(run_json)

    def _read_events(self, after: int) -> Iterator[NumberedEvent]:
        if not self._reads_events:
            return
        for event in self._connection.iter_items(f"/runs/{self._run}/events", "after", after=after):
            yield NumberedEvent(int(event["number"]), event)
