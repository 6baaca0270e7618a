"""Pin the files of a commit while a long result is read; a short query does not touch the database."""

import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.leases.pins import acquire_pin

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database

AFTER_SECONDS = 10.0


class DelayedPin:
    """Pins a commit once it has been in use for a while, until it is released."""

    def __init__(self, db: "Database", commit_id: str, after_seconds: float | None = None) -> None:
        self._db = db
        self._commit_id = commit_id
        self._guard = threading.Lock()
        self._pins = ExitStack()
        self._released = False
        self._timer = threading.Timer(AFTER_SECONDS if after_seconds is None else after_seconds, self._pin)
        self._timer.daemon = True
        self._timer.start()

    def release(self) -> None:
        """Release the pin; may be called again."""
        self._timer.cancel()
        with self._guard:
            self._released = True
            self._pins.close()

    def _pin(self) -> None:
        # Without a pin the sweep's grace period still covers a read, so a busy database is no reason to fail.
        with self._guard, suppress(RunnelError):
            if not self._released:
                self._pins.enter_context(acquire_pin(self._db, "read", self._commit_id))
