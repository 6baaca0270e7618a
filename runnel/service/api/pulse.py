"""Whether anything changed: one poller for all who listen, and none where nobody does."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from anyio import to_thread

from runnel.errors import RunnelError
from runnel.lake import queue, schema, workers
from runnel.service.api.sse import HEARTBEAT_SECONDS
from runnel.service.api.workers import depths

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.database import Database

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


def look(connection: "Connection") -> dict[str, Any]:
    """Return what tells whether anything changed, from a few rows."""
    heads = sa.select(schema.branches.c.name, schema.branches.c.head).order_by(schema.branches.c.name)
    columns = schema.streams.c
    streams = sa.select(columns.branch, columns.table_name, columns.state, columns.since)
    found = connection.execute(streams.order_by(columns.branch, columns.table_name))
    return {
        "branches": {row.name: row.head for row in connection.execute(heads)},
        "queue": {**depths(connection), "version": _version(connection)},
        "workers": [{"worker": one.id, "kind": one.kind, "state": one.state} for one in workers.present(connection)],
        "streams": [
            {"branch": row.branch, "table": row.table_name, "state": row.state, "since": row.since} for row in found
        ],
    }


def _version(connection: "Connection") -> str:
    """Return what differs whenever an entry came, began, is to stop or ended: only open ones are looked at."""
    columns = schema.queue.c
    newest = connection.execute(sa.select(sa.func.max(columns.id))).scalar()
    told = (sa.func.count(), sa.func.max(columns.id), sa.func.min(columns.id), sa.func.sum(columns.attempt))
    times = (sa.func.max(columns.started_at), sa.func.max(columns.cancel_at))
    opened = connection.execute(sa.select(*told, *times).where(columns.state.in_(queue.OPEN))).one()
    return hashlib.sha256(repr((newest, *opened)).encode()).hexdigest()[:16]
