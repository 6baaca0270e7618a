"""Write one stream of rows with several threads: compressing Parquet takes most of the time of a load."""

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

MAX_WRITERS = 4
ROWS_PER_WRITER = 2_000_000  # a small load writes one file
_MAX_PENDING = 2


class _ThreadedWriter:
    """A writer with a thread of its own."""

    def __init__(self, store: "Store", metadata: "TableMetadata") -> None:
        self.writer = RowWriter(store, metadata)
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="runnel-load")
        self.pending: deque[Future[None]] = deque()

    def write(self, batch: "pa.RecordBatch") -> None:
        while len(self.pending) >= _MAX_PENDING:
            self.pending.popleft().result()
        self.pending.append(self.executor.submit(self.writer.write, batch))

    def close(self) -> list[DataFile]:
        for future in self.pending:
            future.result()
        return self.executor.submit(self.writer.close).result()


def write_rows(
    store: "Store",
    metadata: "TableMetadata",
    batches: Iterable["pa.RecordBatch"],
    report_progress: Callable[[int], None],
) -> tuple[list[DataFile], int]:
    """Write all batches; return the data files and the number of rows.

    A partitioned table is written by one writer, so that the number of files does not multiply.
    """
    max_writers = min(MAX_WRITERS, os.cpu_count() or 1) if metadata.spec().is_unpartitioned() else 1
    writers = [_ThreadedWriter(store, metadata)]
    rows = 0
    try:
        for position, batch in enumerate(batches):
            if len(writers) < max_writers and rows >= len(writers) * ROWS_PER_WRITER:
                writers.append(_ThreadedWriter(store, metadata))
            writers[position % len(writers)].write(batch)
            rows += batch.num_rows
            report_progress(rows)
        return [file for writer in writers for file in writer.close()], rows
    finally:
        for writer in writers:
            writer.executor.shutdown(wait=True, cancel_futures=True)
