"""Write one stream of rows with several threads: compressing Parquet is what takes the time of a load."""

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile

from runnel.lake.iceberg.parquet_writer import RowWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

MOST_LANES = 4
ROWS_PER_LANE = 2_000_000  # a small load makes one file
_WAITING = 2


class _Lane:
    """A writer with a thread of its own."""

    def __init__(self, store: "Store", metadata: "TableMetadata") -> None:
        self.writer = RowWriter(store, metadata)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="runnel-load")
        self.waiting: deque[Future[None]] = deque()

    def write(self, batch: "pa.RecordBatch") -> None:
        while len(self.waiting) >= _WAITING:
            self.waiting.popleft().result()
        self.waiting.append(self.thread.submit(self.writer.write, batch))

    def close(self) -> list[DataFile]:
        for done in self.waiting:
            done.result()
        return self.thread.submit(self.writer.close).result()


def write_rows(
    store: "Store", metadata: "TableMetadata", batches: Iterable["pa.RecordBatch"], told: Callable[[int], None]
) -> tuple[list[DataFile], int]:
    """Write all batches; return the data files and the number of rows.

    Files of a partitioned table come from one lane, so that their number does not multiply.
    """
    most = min(MOST_LANES, os.cpu_count() or 1) if metadata.spec().is_unpartitioned() else 1
    lanes = [_Lane(store, metadata)]
    rows = 0
    try:
        for position, batch in enumerate(batches):
            if len(lanes) < most and rows >= len(lanes) * ROWS_PER_LANE:
                lanes.append(_Lane(store, metadata))
            lanes[position % len(lanes)].write(batch)
            rows += batch.num_rows
            told(rows)
        return [file for lane in lanes for file in lane.close()], rows
    finally:
        for lane in lanes:
            lane.thread.shutdown(wait=True, cancel_futures=True)
