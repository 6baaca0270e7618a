"""Write events as they come: one thread takes all that waits, and writes it in one transaction.

The more requests come at once, the more of them share a transaction, and with it the time that a disk needs to be sure.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import RunnelError, Unreachable
from runnel.lake.flow_state.inbox_writer import Parcel, Receipt, put

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database

LOG = logging.getLogger("runnel.api")
MOST_AT_ONCE = 16 * 2**20  # characters in one transaction, about
MOST_WAITING = 128 * 2**20
_END_SECONDS = 30.0
Told = Receipt | RunnelError


@dataclass(frozen=True)
class _Waiting:
    """A parcel, and whom to tell in which event loop."""

    parcel: Parcel
    size: int
    loop: asyncio.AbstractEventLoop
    told: "asyncio.Future[Receipt]"


class Writer:
    """The thread that writes. It begins with the first parcel."""

    def __init__(self, db: "Database") -> None:
        self._db = db
        self._waiting: deque[_Waiting] = deque()
        self._size = 0
        self._news = threading.Condition()
        self._is_ending = False
        self._thread: threading.Thread | None = None

    async def put(self, parcel: Parcel, size: int) -> Receipt:
        """Return what was taken of a parcel, once that is durable. `size` is about how large it is."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Receipt] = loop.create_future()
        with self._news:
            if self._size > MOST_WAITING or self._is_ending:
                what = "more events wait to be written than there is room for"
                raise Unreachable("INBOX_BUSY", what, fix="send them again in a moment")
            self._waiting.append(_Waiting(parcel, size, loop, told))
            self._size += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="runnel inbox", daemon=True)
                self._thread.start()
            self._news.notify()
        return await told

    def close(self) -> None:
        """Write what waits, and end."""
        with self._news:
            self._is_ending = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def _write(self) -> None:
        while batch := self._next():
            told: Sequence[Told]
            try:
                told = put(self._db, [one.parcel for one in batch])
            except RunnelError as error:
                told = [error] * len(batch)
            except Exception as error:  # a defect must not end the thread: who waits is told
                LOG.error("events could not be written", exc_info=error)
                fix = "this is a defect of Runnel; nothing of the request was taken"
                told = [RunnelError("INTERNAL", f"unexpected {type(error).__name__}", fix=fix)] * len(batch)
            _tell(batch, told)

    def _next(self) -> list[_Waiting]:
        """Return all that waits, as far as it is not too large for one transaction; nothing at the end."""
        with self._news:
            while not self._waiting and not self._is_ending:
                self._news.wait()
            found: list[_Waiting] = []
            size = 0
            while self._waiting and (not found or size + self._waiting[0].size <= MOST_AT_ONCE):
                size += self._waiting[0].size
                found.append(self._waiting.popleft())
            self._size -= size
            return found


def _tell(batch: Sequence[_Waiting], told: Sequence[Told]) -> None:
    """Tell all who wait, waking each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Receipt], Told]]] = {}
    for one, answer in zip(batch, told, strict=True):
        loops.setdefault(one.loop, []).append((one.told, answer))
    for loop, answers in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, answers)


def _settle(answers: "Sequence[tuple[asyncio.Future[Receipt], Told]]") -> None:
    for future, answer in answers:
        if future.done():
            continue  # whoever waited has gone
        if isinstance(answer, Receipt):
            future.set_result(answer)
        else:
            future.set_exception(answer)
