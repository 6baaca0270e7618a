"""Whether anything changed: one poller for all who listen, and none where nobody does."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from runnel.errors import RunnelError
from runnel.lake.control.change_signal import look
from runnel.service.api.sse import HEARTBEAT_SECONDS

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database

POLL_SECONDS = 0.5


class Pulse:
    """What the lake is like now, for everyone who listens in one event loop. `ending` ends all of them."""

    def __init__(self, db: "Database", ending: Event) -> None:
        self._db = db
        self._ending = ending
        self._listeners = 0
        self._state: dict[str, Any] | None = None
        self._turn = asyncio.Event()  # set, and replaced, when the state has changed
        self._task: asyncio.Task[None] | None = None

    async def states(self) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yield the state, then each one that differs, and None now and then where nothing does."""
        self._listeners += 1
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        try:
            seen: dict[str, Any] | None = None
            while not self._ending.is_set():
                turn = self._turn
                if self._state is not None and self._state != seen:
                    seen = self._state
                    yield seen
                    continue
                try:
                    await asyncio.wait_for(turn.wait(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield None
        finally:
            self._leave()

    def _leave(self) -> None:
        self._listeners -= 1
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task, self._state = None, None

    async def _poll(self) -> None:
        while True:
            with suppress(RunnelError):  # the database is away; what it was like is what is known
                found = await to_thread.run_sync(lambda: self._db.read(look))
                if found != self._state:
                    self._state = found
                    self._wake()
            if self._ending.is_set():
                self._wake()
            await asyncio.sleep(POLL_SECONDS)

    def _wake(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()
