"""Write pushed events: one thread writes all pending parcels in one transaction.

The more requests arrive at once, the more of them share a transaction and its fsync.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.errors import RunnelError, Unreachable
from runnel.lake.flow_state.inbox_writer import PushReceipt, PushRequest, write_events

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database

LOG = logging.getLogger("runnel.api")
MAX_BATCH_CHARACTERS = 16 * 2**20  # characters in one transaction, about
MAX_WAITING_CHARACTERS = 128 * 2**20
_END_SECONDS = 30.0
WriteOutcome = PushReceipt | RunnelError


@dataclass(frozen=True)
class _PendingParcel:
    """A parcel, and the future of its request with the event loop that it belongs to."""

    parcel: PushRequest
    size: int
    loop: asyncio.AbstractEventLoop
    receipt: "asyncio.Future[PushReceipt]"


class EventWriter:
    """The writer thread, which starts with the first parcel."""

    def __init__(self, db: "Database") -> None:
        self._db = db
        self._pending: deque[_PendingParcel] = deque()
        self._pending_size = 0
        self._condition = threading.Condition()
        self._is_ending = False
        self._thread: threading.Thread | None = None

    async def put(self, parcel: PushRequest, size: int) -> PushReceipt:
        """Write a parcel, and return its receipt once it is durable. `size` is its approximate number of characters."""
        loop = asyncio.get_running_loop()
        receipt: asyncio.Future[PushReceipt] = loop.create_future()
        with self._condition:
            if self._pending_size > MAX_WAITING_CHARACTERS or self._is_ending:
                what = "too many events wait to be written"
                raise Unreachable("INBOX_BUSY", what, fix="send them again in a moment")
            self._pending.append(_PendingParcel(parcel, size, loop, receipt))
            self._pending_size += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_loop, name="runnel inbox", daemon=True)
                self._thread.start()
            self._condition.notify()
        return await receipt

    def close(self) -> None:
        """Write the pending parcels, and end the thread."""
        with self._condition:
            self._is_ending = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def _write_loop(self) -> None:
        while batch := self._next_batch():
            outcomes: Sequence[WriteOutcome]
            try:
                outcomes = write_events(self._db, [pending.parcel for pending in batch])
            except RunnelError as error:
                outcomes = [error] * len(batch)
            except Exception as error:  # a defect must not end the thread: the waiting requests get the error
                LOG.error("events could not be written", exc_info=error)
                fix = "this is a defect of Runnel; no event of the request was accepted"
                outcomes = [RunnelError("INTERNAL", f"unexpected {type(error).__name__}", fix=fix)] * len(batch)
            _resolve_all(batch, outcomes)

    def _next_batch(self) -> list[_PendingParcel]:
        """Return the pending parcels, up to the limit of one transaction; none if the writer ends."""
        with self._condition:
            while not self._pending and not self._is_ending:
                self._condition.wait()
            batch: list[_PendingParcel] = []
            size = 0
            while self._pending and (not batch or size + self._pending[0].size <= MAX_BATCH_CHARACTERS):
                size += self._pending[0].size
                batch.append(self._pending.popleft())
            self._pending_size -= size
            return batch


def _resolve_all(batch: Sequence[_PendingParcel], outcomes: Sequence[WriteOutcome]) -> None:
    """Pass the outcomes to all waiting requests, waking each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[PushReceipt], WriteOutcome]]] = {}
    for pending, outcome in zip(batch, outcomes, strict=True):
        loops.setdefault(pending.loop, []).append((pending.receipt, outcome))
    for loop, loop_outcomes in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve_futures, loop_outcomes)


def _resolve_futures(loop_outcomes: "Sequence[tuple[asyncio.Future[PushReceipt], WriteOutcome]]") -> None:
    for future, outcome in loop_outcomes:
        if future.done():
            continue  # the request was cancelled
        if isinstance(outcome, PushReceipt):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
