"""Compact tables that get many small commits, and collect garbage.

Files are compacted in size tiers, so that each row is rewritten only a few times, however many files are added.
"""

import time
from typing import TYPE_CHECKING

from runnel.errors import Conflict
from runnel.lake.flow_state import streams
from runnel.lake.iceberg.data_file_owners import SHARED_FILE_BYTES
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.parquet_writer import TARGET_BYTES
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.upkeep.compact.compact import compact, has_owned_rows
from runnel.lake.upkeep.gc.collect import gc
from runnel.lake.upkeep.gc.retention import Retention
from runnel.service.worker.loops.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.names import TableName
    from runnel.service.worker.loops.loop_context import LoopContext

PAUSE_SECONDS = 1.0
GC_SECONDS = 900.0
MOST_FILES = 12  # of one tier; more are compacted into a file of the next
TIERS = (1 << 20, 16 << 20, TARGET_BYTES)
OWNED_TIERS = (1 << 20, SHARED_FILE_BYTES)  # of a table of a file source: data files that its files share stay small


def choose_target_bytes(sizes: "Sequence[int]", tiers: "Sequence[int]") -> int | None:
    """Return the largest tier below half of which there are too many files that are too large for smaller tiers.

    >>> choose_target_bytes([100] * 20, TIERS), choose_target_bytes([100], TIERS)
    (1048576, None)
    """
    lower_bound, target_bytes = 0, None
    for target in tiers:
        if sum(lower_bound <= size < target // 2 for size in sizes) > MOST_FILES:
            target_bytes = target
        lower_bound = target // 2
    return target_bytes


class CompactionLoop(Loop):
    """Compacts continuously written tables in a loop."""

    def __init__(self, context: "LoopContext", tables: "Sequence[TableName]") -> None:
        super().__init__("upkeep", context)
        self._tables = tables
        self._collected_at = time.monotonic()

    def run_loop(self) -> None:
        """Check each table periodically; a table that can't be compacted delays neither the others nor gc."""
        while not self.stop.wait(PAUSE_SECONDS):
            errors = [error for table in self._tables if (error := self._compact_if_needed(table)) is not None]
            if time.monotonic() - self._collected_at > GC_SECONDS:
                self._collect_garbage()
            if errors:
                raise errors[0]
            self.mark_healthy()

    def _compact_if_needed(self, table: "TableName") -> Exception | None:
        """Compact a table if it has too many files; return the error, if any."""
        try:
            target_bytes = self.find_target_bytes(table)
            if target_bytes is not None and not self.stop.is_set():
                store, branch = self.context.lake.store, self.context.branch
                compact(store, table, branch=branch, target_bytes=target_bytes, only_small=True)
        except Exception as error:
            return error
        return None

    def find_target_bytes(self, table: "TableName") -> int | None:
        """Return the target size of a compaction if a table has too many files of a tier, else None."""
        store = self.context.lake.store
        commit = store.commit(self.context.branch)
        version = store.state(commit).get(table)
        if version is None:
            return None
        metadata = load_metadata(store, version.location)
        sizes = [entry.file.file_size_in_bytes for entry in read_entries(store, metadata) if entry.is_data]
        target_bytes = choose_target_bytes(sizes, TIERS)
        if target_bytes is not None and has_owned_rows(store, commit, table, version):
            return choose_target_bytes(sizes, OWNED_TIERS)
        return target_bytes

    def _collect_garbage(self) -> None:
        self._collected_at = time.monotonic()
        streams.delete_old_batches(self.context.lake.store.db)
        try:
            gc(self.context.lake.store, Retention(**self.context.lake.settings.retention))
        except Conflict:
            return  # another gc is running

    def record_state(self, _state: str, problem: str | None) -> None:
        """Report the problem with the worker: this loop has no row of its own."""
        self.context.report_problem("upkeep", problem)
