"""Release the claims of runs whose worker has died and no longer renews them.

Time is measured by a monotonic clock: a claim is stale if this process has not seen it renewed for a while.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from runnel.lake.control import queue_entry, run_claims, run_queue

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database
    from runnel.lake.control.queue_entry import QueueEntry


class StaleClaimReaper:
    """When this process first saw each claim in its current state."""

    def __init__(self, db: "Database", clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self._first_seen_at: dict[tuple[str, str], float] = {}

    def release_stale_claims(self) -> "list[QueueEntry]":
        """Release stale claims, and return their queue entries afterwards."""
        running_entries = self._db.read(
            lambda connection: run_queue.list_entries(connection, states=(queue_entry.RUNNING,))
        )
        now = self._clock()
        claims = [(entry.id, entry.renewed_at or "") for entry in running_entries]
        self._first_seen_at = {key: self._first_seen_at.get(key, now) for key in claims}
        stale = [key for key, since in self._first_seen_at.items() if now - since > run_claims.CLAIM_SECONDS]
        return run_claims.release_claims(self._db, stale=stale) if stale else []
