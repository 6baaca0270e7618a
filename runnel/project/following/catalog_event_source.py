"""The events of a run from the catalog database, where its worker records them."""

from collections.abc import Callable, Generator
from itertools import repeat
from typing import TYPE_CHECKING

from runnel.lake.control import run_events, run_queue
from runnel.project.following.run_follower import FinishedRun, FollowedItem, NumberedEvent, poll_run

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database

_PAUSE_SECONDS = 0.05


class CatalogEventSource:
    """The events of a queue entry. `cancel` replaces the way in which it is cancelled: a chunk with its backfill."""

    def __init__(self, db: "Database", entry_id: str, cancel: Callable[[], object] | None = None) -> None:
        self._db, self._entry_id, self._cancel = db, entry_id, cancel

    def follow(self, after: int) -> Generator[FollowedItem, None, None]:
        """Yield events and the end."""
        return poll_run(self._read_end, self._read_events, after, repeat(_PAUSE_SECONDS))

    def cancel(self) -> None:
        """Cancel the entry."""
        if self._cancel is not None:
            self._cancel()
        else:
            run_queue.cancel(self._db, self._entry_id)

    def _read_end(self) -> FinishedRun | None:
        entry = self._db.read(lambda connection: run_queue.find(connection, self._entry_id))
        return None if entry.is_open else FinishedRun(entry.run, entry.state, entry.branch, entry.commit, entry.outcome)

    def _read_events(self, after: int) -> list[NumberedEvent]:
        new_events = self._db.read(lambda connection: run_events.read_after(connection, self._entry_id, after))
        return [NumberedEvent(run_event.number, run_event.event) for run_event in new_events]
