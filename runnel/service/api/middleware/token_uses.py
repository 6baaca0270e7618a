"""Record when tokens were last used, at most once a minute each, without letting requests wait for it."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread

from runnel.lake.control import tokens

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database
    from runnel.lake.control.tokens import Token

LOG = logging.getLogger("runnel.api")
RECORD_SECONDS = 60.0


class TokenUses:
    """When this service recorded the last use of each token."""

    def __init__(self, db: "Database") -> None:
        self._db = db
        self._recorded_at: dict[str, float] = {}  # by the id of the token
        self._tasks: set[asyncio.Task[None]] = set()  # asyncio itself keeps no reference to a task
        self._threads = CapacityLimiter(1)  # its own, since slow requests may occupy all the others

    def note_use(self, token: "Token") -> None:
        """Start to record that a token is used now, unless that was done less than a minute ago."""
        now = time.monotonic()
        if now - self._recorded_at.get(token.id, -RECORD_SECONDS) < RECORD_SECONDS:
            return
        self._recorded_at[token.id] = now
        task = asyncio.create_task(self._record(token.id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _record(self, token_id: str) -> None:
        try:
            await to_thread.run_sync(tokens.record_use, self._db, token_id, limiter=self._threads)
        except Exception:  # the database is away, or its disk is full: the next use is recorded a minute later
            LOG.exception("recording the use of a token failed")
