"""Write a stream of rows with several threads, so that every source file has data files of its own."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from runnel.connect.load.parallel_writer import MAX_WRITERS, ROWS_PER_WRITER
from runnel.lake.iceberg.data_file_owners import make_owner_prefix
from runnel.lake.iceberg.parquet_writer import RowWriter

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_MAX_PENDING = 4
_WRITERS = 8  # small files wait for the disk, not for a processor
DataFilesByPath = dict[str, list[DataFile]]


class _PartWriter:
    """A thread with an open RowWriter for each path that is not finished."""

    def __init__(self, store: "Store", metadata: "TableMetadata", owners: Mapping[str, str]) -> None:
        self.store = store
        self.owners = owners
        self.metadata = metadata
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="runnel-ingest")
        self.data_files: DataFilesByPath = {}
        self.open_paths: set[str] = set()
        self._writers: dict[str, RowWriter] = {}
        self._pending: deque[Future[None]] = deque()

    def write(self, path: str, rows: pa.RecordBatch) -> None:
        self.open_paths.add(path)
        self._submit(self._write, path, rows)

    def finish(self, path: str) -> None:
        self.open_paths.remove(path)
        self._submit(self._finish, path)

    def wait(self) -> None:
        while self._pending:
            self._pending.popleft().result()

    def _submit(self, work: Callable[..., None], *arguments: object) -> None:
        while len(self._pending) >= _MAX_PENDING:
            self._pending.popleft().result()
        self._pending.append(self.executor.submit(work, *arguments))

    def _write(self, path: str, rows: pa.RecordBatch) -> None:
        if path not in self._writers:
            self._writers[path] = RowWriter(
                self.store, self.metadata, prefix=self.owners.get(path) or make_owner_prefix(path)
            )
        self._writers[path].write(rows)

    def _finish(self, path: str) -> None:
        if path in self._writers:
            self.data_files.setdefault(path, []).extend(self._writers.pop(path).close())


def write_parts(
    store: "Store",
    metadata: "TableMetadata",
    rows: Iterable[tuple[str, pa.RecordBatch]],
    report_progress: Callable[[int], None],
    owners: Mapping[str, str],
) -> DataFilesByPath:
    """Write batches, each with the path that it came from, and return the data files of each path.

    The names of data files start with the owner of the path. Batches of one path should be adjacent: later ones go to
    another data file.
    """
    writers = [_PartWriter(store, metadata, owners) for _ in range(_WRITERS)]
    writers_per_file = min(MAX_WRITERS, os.cpu_count() or 1) if metadata.spec().is_unpartitioned() else 1
    path_number = rows_written = rows_of_path = 0
    current_path: str | None = None
    try:
        for batch_number, (path, batch) in enumerate(rows):
            if path != current_path:
                _finish_path(writers, current_path)
                current_path, rows_of_path, path_number = path, 0, path_number + 1
            # A large file is worth more than one thread.
            writer_index = path_number + (batch_number % writers_per_file if rows_of_path >= ROWS_PER_WRITER else 0)
            writers[writer_index % _WRITERS].write(path, batch)
            rows_of_path, rows_written = rows_of_path + batch.num_rows, rows_written + batch.num_rows
            report_progress(rows_written)
        _finish_path(writers, current_path)
        for writer in writers:
            writer.wait()
    finally:
        for writer in writers:
            writer.executor.shutdown(wait=True, cancel_futures=True)
    return _merge_data_files(writers)


def _finish_path(writers: Iterable[_PartWriter], path: str | None) -> None:
    for writer in writers:
        if path is not None and path in writer.open_paths:
            writer.finish(path)


def _merge_data_files(writers: Iterable[_PartWriter]) -> DataFilesByPath:
    data_files: DataFilesByPath = {}
    for writer in writers:
        for path, files in writer.data_files.items():
            data_files.setdefault(path, []).extend(files)
    return data_files


def split_by_path(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield runs of rows with an equal path, which is the last column and is removed."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        width = batch.num_columns - 1
        runs = pc.call_function("run_end_encode", [batch.column(width)])
        rows = batch.select(list(range(width)))
        start = 0
        for end, path in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield path, rows.slice(start, end - start)
            start = end
