"""Keep tables that get many small commits in shape: small files are put together, what nobody needs goes.

Files are put together in tiers, so that each row is written again only a few times, however many files come.
"""

import threading
import time
from typing import TYPE_CHECKING

from runnel.errors import Conflict
from runnel.lake.flow_state import streams
from runnel.lake.iceberg.manifests import entries
from runnel.lake.iceberg.parquet_writer import TARGET_BYTES
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.upkeep.compact.compact import compact
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.service.worker.loops.loop import Note, Part, Tell, unnoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.client.lake import Lake
    from runnel.names import TableName

PAUSE_SECONDS = 1.0
GC_SECONDS = 900.0
MOST_FILES = 12  # of one tier; then they become one of the next
TIERS = (1 << 20, 16 << 20, TARGET_BYTES)


class Upkeep(Part):
    """The upkeep of tables that are written on and on."""

    def __init__(
        self,
        lake: "Lake",
        tables: "Sequence[TableName]",
        branch: str,
        stop: threading.Event,
        tell: Tell,
        note: Note = unnoted,
    ) -> None:
        super().__init__("upkeep", stop, tell)
        self._lake = lake
        self._tables = tables
        self._branch = branch
        self._note = note
        self._swept_at = time.monotonic()

    def go(self) -> None:
        """Look at each table from time to time; one that can't be put together holds up neither others nor gc."""
        while not self.stop.wait(PAUSE_SECONDS):
            errors = [error for table in self._tables if (error := self._look_after(table)) is not None]
            if time.monotonic() - self._swept_at > GC_SECONDS:
                self._sweep()
            if errors:
                raise errors[0]
            self.well()

    def _look_after(self, table: "TableName") -> Exception | None:
        """Put the files of a table together where they are too many; return what went wrong."""
        try:
            tier = self.worn(table)
            if tier is not None and not self.stop.is_set():
                compact(self._lake.store, table, branch=self._branch, target_bytes=tier, only_small=True)
        except Exception as error:
            return error
        return None

    def worn(self, table: "TableName") -> int | None:
        """Return how large the files of a table should become that are too many; None where none are."""
        store = self._lake.store
        version = store.state(self._branch).get(table)
        if version is None:
            return None
        sizes = [one.file.file_size_in_bytes for one in entries(store, load(store, version.location)) if one.is_data]
        least = 0
        worn = None
        for target in TIERS:
            if sum(least <= size < target // 2 for size in sizes) > MOST_FILES:
                worn = target
            least = target // 2
        return worn

    def _sweep(self) -> None:
        self._swept_at = time.monotonic()
        streams.forget_old(self._lake.store.db)
        try:
            gc(self._lake.store, Retention(**self._lake.settings.retention))
        except Conflict:
            return  # somebody else does it

    def troubled(self, state: str, problem: str | None) -> None:
        """Show it with the worker: upkeep has no row of its own."""
        self._note("upkeep", problem)
