"""Poll the catalog for changes: one poller for all listeners, and none if nobody listens."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from runnel.errors import RunnelError
from runnel.lake.control.change_signal import read_change_signal
from runnel.service.api.sse import HEARTBEAT_SECONDS

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database

POLL_SECONDS = 0.5


class ChangePoller:
    """The current state of the lake, for all listeners of one event loop. `ending` ends all of them."""

    def __init__(self, db: "Database", ending: Event) -> None:
        self._db = db
        self._ending = ending
        self._listeners = 0
        self._state: dict[str, Any] | None = None
        self._changed = asyncio.Event()  # set, and replaced, when the state has changed
        self._task: asyncio.Task[None] | None = None

    async def watch_states(self) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yield the state, then each changed state, and None as a heartbeat while nothing changes."""
        self._listeners += 1
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        try:
            last_state: dict[str, Any] | None = None
            while not self._ending.is_set():
                changed = self._changed
                if self._state is not None and self._state != last_state:
                    last_state = self._state
                    yield last_state
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield None
        finally:
            self._remove_listener()

    def _remove_listener(self) -> None:
        self._listeners -= 1
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task, self._state = None, None

    async def _poll(self) -> None:
        while True:
            with suppress(RunnelError):  # the database is unreachable; the last state remains
                state = await to_thread.run_sync(lambda: self._db.read(read_change_signal))
                if state != self._state:
                    self._state = state
                    self._wake_listeners()
            if self._ending.is_set():
                self._wake_listeners()
            await asyncio.sleep(POLL_SECONDS)

    def _wake_listeners(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
