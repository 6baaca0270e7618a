"""Find runs whose worker is gone: their claim is no longer renewed.

Time is measured by a clock that never jumps: a claim is over when nobody was seen to renew it for a while.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from runnel.lake.control import run_queue

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database
    from runnel.lake.control.run_queue import Queued


class Reaper:
    """What one process has seen of the claims."""

    def __init__(self, db: "Database", tick: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._tick = tick
        self._seen: dict[tuple[str, str], float] = {}

    def look(self) -> "list[Queued]":
        """End the claims that are over, and return their entries as they are then."""
        running = self._db.read(lambda connection: run_queue.entries(connection, states=(run_queue.RUNNING,)))
        now = self._tick()
        held = [(one.id, one.renewed_at or "") for one in running]
        self._seen = {key: self._seen.get(key, now) for key in held}
        stale = [key for key, since in self._seen.items() if now - since > run_queue.CLAIM_SECONDS]
        return run_queue.release(self._db, stale=stale) if stale else []
