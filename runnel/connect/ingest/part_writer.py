"""Write a stream of rows with several threads, so that the rows of each source file can be found and replaced later.

A large source file has data files of its own. Many small ones share data files, whose footers say which rows are whose.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from runnel.connect.files.file_patterns import LocalFile
from runnel.connect.load.parallel_writer import MAX_WRITERS, ROWS_PER_WRITER
from runnel.lake.iceberg.data_file_owners import SHARED_FILE_BYTES, RowRun, make_owner_prefix
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.scan.duckdb_connection import count_threads

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.warehouse_files import FileAccess

LEAST_SHARED = 32  # source files; so many data files more are no burden
SMALL_BYTES = 1024 * 1024  # of a source file: a larger one has data files of its own
_MAX_PENDING = 4
_WRITERS = 8  # small files wait for the disk, not for a processor


@dataclass(frozen=True)
class WrittenFiles:
    """The data files that were written, and for each source file the locations of those that have its rows."""

    files: tuple[DataFile, ...] = ()
    locations_by_path: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Return how many rows were written."""
        return sum(file.record_count for file in self.files)


@dataclass(frozen=True)
class PathRows:
    """Rows of one source file, or of several that share data files: how many rows each has, in their order."""

    rows: pa.RecordBatch
    counts: tuple[tuple[str, int], ...]
    is_shared: bool = False


def choose_shared_files(files: Iterable[LocalFile]) -> frozenset[str]:
    """Return the names of those source files of a batch that share data files.

    >>> files = [LocalFile(f"{number}.csv", f"/{number}.csv", 100, 0.0) for number in range(50)]
    >>> choose_shared_files(files[:1]), len(choose_shared_files(files))
    (frozenset(), 50)
    """
    small_names = list_small_files(files)
    return small_names if len(small_names) >= LEAST_SHARED else frozenset()


def list_small_files(files: Iterable[LocalFile]) -> frozenset[str]:
    """Return the names of source files that share data files, if there are many of them."""
    return frozenset(file.name for file in files if file.bytes <= SMALL_BYTES)


class _PartWriter:
    """A thread with an open RowWriter for each path that is not finished, and one for paths that share data files.

    With `in_caller_thread` there is no such thread: a process with one thread reads and writes in turns.
    """

    def __init__(
        self, store: "FileAccess", metadata: "TableMetadata", owners: Mapping[str, str], *, in_caller_thread: bool
    ) -> None:
        self.store = store
        self.owners = owners
        self.metadata = metadata
        self.executor = None if in_caller_thread else ThreadPoolExecutor(1, thread_name_prefix="runnel-ingest")
        self.data_files: dict[str, list[DataFile]] = {}
        self.open_paths: set[str] = set()
        self._writers: dict[str, RowWriter] = {}
        self._shared_writer: RowWriter | None = None
        self._pending: deque[Future[None]] = deque()

    def write(self, path: str, rows: pa.RecordBatch) -> None:
        self.open_paths.add(path)
        self._submit(self._write, path, rows)

    def write_shared(self, rows: pa.RecordBatch, counts: Sequence[tuple[str, int]]) -> None:
        self._submit(self._write_shared, rows, [RowRun(self._find_owner(path), "", count) for path, count in counts])

    def finish(self, path: str) -> None:
        self.open_paths.remove(path)
        self._submit(self._finish, path)

    def close_shared(self) -> RowWriter | None:
        """Finish the shared data files, and return their writer."""
        self._submit(self._close_shared)
        self.wait()
        return self._shared_writer

    def wait(self) -> None:
        while self._pending:
            self._pending.popleft().result()

    def stop(self) -> None:
        """End the thread, after what it does now."""
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)

    def _submit(self, work: Callable[..., None], *arguments: object) -> None:
        if self.executor is None:
            work(*arguments)
            return
        while len(self._pending) >= _MAX_PENDING:
            self._pending.popleft().result()
        self._pending.append(self.executor.submit(work, *arguments))

    def _find_owner(self, path: str) -> str:
        return self.owners.get(path) or make_owner_prefix(path)

    def _write(self, path: str, rows: pa.RecordBatch) -> None:
        if path not in self._writers:
            self._writers[path] = RowWriter(self.store, self.metadata, prefix=self._find_owner(path))
        self._writers[path].write(rows)

    def _write_shared(self, rows: pa.RecordBatch, runs: Sequence[RowRun]) -> None:
        if self._shared_writer is None:
            self._shared_writer = RowWriter(self.store, self.metadata, is_shared=True)
            self._shared_writer.target_bytes = min(self._shared_writer.target_bytes, SHARED_FILE_BYTES)
        self._shared_writer.write(rows, runs)

    def _close_shared(self) -> None:
        if self._shared_writer is not None:
            self._shared_writer.close()

    def _finish(self, path: str) -> None:
        if path in self._writers:
            self.data_files.setdefault(path, []).extend(self._writers.pop(path).close())


def write_parts(
    store: "FileAccess",
    metadata: "TableMetadata",
    parts: Iterable[PathRows],
    report_progress: Callable[[int], None],
    owners: Mapping[str, str],
) -> WrittenFiles:
    """Write rows, each part with the paths that it came from.

    The names of data files start with the owner of the path, unless they are shared. Parts of one path should be
    adjacent: later ones go to another data file.
    """
    threads = count_threads()
    writers = [
        _PartWriter(store, metadata, owners, in_caller_thread=threads == 1)
        for _ in range(_WRITERS if threads > 1 else 1)
    ]
    writers_per_file = min(MAX_WRITERS, threads) if metadata.spec().is_unpartitioned() else 1
    path_number = rows_written = rows_of_path = 0
    current_path: str | None = None
    try:
        for part_number, part in enumerate(parts):
            rows_written += part.rows.num_rows
            if part.is_shared:
                writers[part_number % writers_per_file].write_shared(part.rows, part.counts)
                report_progress(rows_written)
                continue
            path = part.counts[0][0]
            if path != current_path:
                _finish_path(writers, current_path)
                current_path, rows_of_path, path_number = path, 0, path_number + 1
            # A large file is worth more than one thread.
            writer_index = path_number + (part_number % writers_per_file if rows_of_path >= ROWS_PER_WRITER else 0)
            writers[writer_index % len(writers)].write(path, part.rows)
            rows_of_path += part.rows.num_rows
            report_progress(rows_written)
        _finish_path(writers, current_path)
        shared_writers = [writer.close_shared() for writer in writers]
    finally:
        for writer in writers:
            writer.stop()
    return _collect_files(writers, [writer for writer in shared_writers if writer is not None], owners)


def _finish_path(writers: Iterable[_PartWriter], path: str | None) -> None:
    for writer in writers:
        if path is not None and path in writer.open_paths:
            writer.finish(path)


def _collect_files(
    writers: Iterable[_PartWriter], shared_writers: Sequence[RowWriter], owners: Mapping[str, str]
) -> WrittenFiles:
    locations: dict[str, list[str]] = {}
    files: list[DataFile] = []
    for writer in writers:
        for path, path_files in writer.data_files.items():
            files += path_files
            locations.setdefault(path, []).extend(file.file_path for file in path_files)
    paths_by_owner = {owner: path for path, owner in owners.items()}
    for shared_writer in shared_writers:
        files += shared_writer.close()
        for location, file_owners in shared_writer.owners_by_location.items():
            for owner in file_owners:
                locations.setdefault(paths_by_owner[owner], []).append(location)
    return WrittenFiles(tuple(files), {path: tuple(path_locations) for path, path_locations in locations.items()})


def split_by_path(
    batches: Iterable[pa.RecordBatch], name_of: Callable[[str], str], shared_names: Container[str]
) -> Iterator[PathRows]:
    """Yield runs of rows with an equal path, which is the last column and is removed.

    Adjacent runs of paths that share data files stay together.
    """
    for batch in batches:
        if batch.num_rows == 0:
            continue
        width = batch.num_columns - 1
        runs = pc.call_function("run_end_encode", [batch.column(width)])
        rows = batch.select(list(range(width)))
        start = shared_start = 0
        shared_counts: list[tuple[str, int]] = []
        for end, path in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            name = name_of(path)
            if name in shared_names:
                shared_counts.append((name, end - start))
            else:
                if shared_counts:
                    yield PathRows(rows.slice(shared_start, start - shared_start), tuple(shared_counts), is_shared=True)
                yield PathRows(rows.slice(start, end - start), ((name, end - start),))
                shared_counts, shared_start = [], end
            start = end
        if shared_counts:
            yield PathRows(rows.slice(shared_start, start - shared_start), tuple(shared_counts), is_shared=True)
