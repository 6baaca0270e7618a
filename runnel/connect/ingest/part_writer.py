"""Write a stream of rows so that every source file has data files of its own, with several threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from runnel.connect.load.parallel_writer import MOST_LANES, ROWS_PER_LANE
from runnel.lake.iceberg.data_file_owners import prefix
from runnel.lake.iceberg.parquet_writer import RowWriter

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_WAITING = 4
_LANES = 8  # small files wait for the disk, not for a processor
Made = dict[str, list[DataFile]]


class _Lane:
    """A thread with a writer for each file that it is in the midst of."""

    def __init__(self, store: "Store", metadata: "TableMetadata", owners: Mapping[str, str]) -> None:
        self.store = store
        self.owners = owners
        self.metadata = metadata
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="runnel-ingest")
        self.made: Made = {}
        self.begun: set[str] = set()
        self._writers: dict[str, RowWriter] = {}
        self._waiting: deque[Future[None]] = deque()

    def write(self, path: str, rows: pa.RecordBatch) -> None:
        self.begun.add(path)
        self._submit(self._write, path, rows)

    def finish(self, path: str) -> None:
        self.begun.remove(path)
        self._submit(self._finish, path)

    def wait(self) -> None:
        while self._waiting:
            self._waiting.popleft().result()

    def _submit(self, work: Callable[..., None], *given: object) -> None:
        while len(self._waiting) >= _WAITING:
            self._waiting.popleft().result()
        self._waiting.append(self.thread.submit(work, *given))

    def _write(self, path: str, rows: pa.RecordBatch) -> None:
        if path not in self._writers:
            self._writers[path] = RowWriter(self.store, self.metadata, prefix=self.owners.get(path) or prefix(path))
        self._writers[path].write(rows)

    def _finish(self, path: str) -> None:
        if path in self._writers:
            self.made.setdefault(path, []).extend(self._writers.pop(path).close())


def write_parts(
    store: "Store",
    metadata: "TableMetadata",
    rows: Iterable[tuple[str, pa.RecordBatch]],
    told: Callable[[int], None],
    owners: Mapping[str, str],
) -> Made:
    """Write rows, each with the path that it came from, and return the data files of each path.

    The names of data files start with the owner of the path. Rows of one path should follow each other: what comes
    again later goes to another data file.
    """
    lanes = [_Lane(store, metadata, owners) for _ in range(_LANES)]
    spread = min(MOST_LANES, os.cpu_count() or 1) if metadata.spec().is_unpartitioned() else 1
    turn = done = of_path = 0
    current: str | None = None
    try:
        for batches, (path, batch) in enumerate(rows):
            if path != current:
                _finish(lanes, current)
                current, of_path, turn = path, 0, turn + 1
            # A large file is worth more than one thread.
            place = turn + (batches % spread if of_path >= ROWS_PER_LANE else 0)
            lanes[place % _LANES].write(path, batch)
            of_path, done = of_path + batch.num_rows, done + batch.num_rows
            told(done)
        _finish(lanes, current)
        for lane in lanes:
            lane.wait()
    finally:
        for lane in lanes:
            lane.thread.shutdown(wait=True, cancel_futures=True)
    return _joined(lanes)


def _finish(lanes: Iterable[_Lane], path: str | None) -> None:
    for lane in lanes:
        if path is not None and path in lane.begun:
            lane.finish(path)


def _joined(lanes: Iterable[_Lane]) -> Made:
    made: Made = {}
    for lane in lanes:
        for path, files in lane.made.items():
            made.setdefault(path, []).extend(files)
    return made


def by_path(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield runs of rows with an equal last column, which is taken off."""
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
