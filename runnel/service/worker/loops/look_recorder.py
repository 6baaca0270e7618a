"""Record what a continuously read source has to offer, rarely enough that small batches are not delayed by it."""

import time
from typing import TYPE_CHECKING

from runnel.lake.flow_state.stream_metrics import SourceLook, record_look

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database
    from runnel.names import TableName
    from runnel.run.sources.continuous_ingest import SourceOffer

_BUSY_SECONDS, _IDLE_SECONDS = 10.0, 60.0  # between two records, if something waits, and if nothing does
_MANY_ROWS, _MANY_BYTES = 10_000, 10_000_000  # that are recorded at once: it takes a while to ingest them


class LookRecorder:
    """Records the offers of one source on a branch, and since when the oldest rows of them have waited."""

    def __init__(self, db: "Database", branch: str, table: "TableName") -> None:
        self._db = db
        self._branch = branch
        self._table = table
        self._since: str | None = None
        self._first_amount = 0  # of what was first seen at `_since`, the part that is not ingested yet
        self._recorded_at = float("-inf")
        self._is_recorded_empty: bool | None = None

    def record_offer(self, offer: "SourceOffer") -> None:
        """Record what a source has, as seen before it is ingested, or what is left of it afterwards."""
        if not offer.amount:
            self._since = None
        elif self._since is None:
            self._since, self._first_amount = self._db.now(), offer.amount
        if self._is_due(offer):
            look = SourceLook(self._db.now(), self._since, offer.rows, offer.files, offer.bytes)
            record_look(self._db, self._branch, self._table, look)
            self._recorded_at, self._is_recorded_empty = time.monotonic(), self._since is None

    def record_ingest(self, offer: "SourceOffer", remaining: "SourceOffer") -> None:
        """Record that a part of an offer was ingested; what is left of it was seen at the latest with that offer."""
        self._first_amount -= offer.amount - remaining.amount
        if remaining.amount and self._first_amount <= 0:
            self._since, self._first_amount = self._db.now(), remaining.amount
        self.record_offer(remaining)

    def _is_due(self, offer: "SourceOffer") -> bool:
        seconds = time.monotonic() - self._recorded_at
        if not offer.amount:
            return not self._is_recorded_empty or seconds >= _IDLE_SECONDS
        is_large = (offer.rows or 0) >= _MANY_ROWS or (offer.bytes or 0) >= _MANY_BYTES
        return is_large or seconds >= _BUSY_SECONDS
