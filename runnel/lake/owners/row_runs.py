"""Read which runs of rows of a data file belong to which owner and piece.

Reads footers of shared data files only, in parallel, and caches them in memory: data files never change. Imports Arrow
only if there are such files, because plans use this module, too.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from cachetools import LRUCache

from runnel.errors import CorruptData
from runnel.lake.iceberg.data_file_owners import (
    OWNERS_KEY,
    OwnedRow,
    RowRun,
    decode_runs,
    is_shared,
    make_file_name,
    read_file_id,
    read_file_name,
    read_owner_prefix,
)
from runnel.lake.iceberg.file_io import local_path, missing_file_error, normalize_location

if TYPE_CHECKING:
    import numpy as np
    import pyarrow.parquet as pq

    from runnel.lake.iceberg.manifests import FileEntry
    from runnel.lake.warehouse_files import FileAccess

_CACHED_BYTES = 64 * 1024 * 1024
_READERS = 8
_cached_texts: LRUCache[str, bytes] = LRUCache(_CACHED_BYTES, getsizeof=len)
_guard = threading.Lock()


def read_shared_runs(store: "FileAccess", location: str) -> tuple[RowRun, ...]:
    """Return the runs of a shared data file, in the order of its rows."""
    return decode_runs(location, _read_text(store, location))


def list_runs(store: "FileAccess", entry: "FileEntry") -> tuple[RowRun, ...]:
    """Return the runs of any data file, in the order of its rows; none if no source file owns its rows."""
    if is_shared(entry.path):
        return read_shared_runs(store, entry.path)
    owned_row = find_owned_row(store, entry.path, 0)
    if owned_row is None:
        return ()
    return (RowRun(owned_row.owner, owned_row.piece, entry.file.record_count, owned_row.number),)


def find_owned_row(store: "FileAccess", location: str, position: int) -> OwnedRow | None:
    """Return whose row is at a position, from 0, of a data file; None if no source file owns it."""
    if not is_shared(location):
        owner, file_id = read_owner_prefix(location), read_file_id(location)
        if owner is None:
            return None
        is_as_written = read_file_name(location) == make_file_name(owner, file_id)
        return OwnedRow(owner, file_id, position if is_as_written else None)
    start = 0
    for run in read_shared_runs(store, location):
        if position < start + run.rows:
            return OwnedRow(run.owner, run.piece, None if run.first is None else run.first + position - start)
        start += run.rows
    return None


def load_footers(store: "FileAccess", entries: Iterable["FileEntry"]) -> None:
    """Read the footers of all shared data files among `entries` at once, so that their runs are in memory."""
    with _guard:
        missing = [entry.path for entry in entries if is_shared(entry.path) and entry.path not in _cached_texts]
    if len(missing) > 1:
        with ThreadPoolExecutor(_READERS, thread_name_prefix="runnel-footers") as executor:
            list(executor.map(lambda location: _read_text(store, location), missing))


def find_run_numbers(runs: Sequence[RowRun], positions: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return the number of the run that each position of a data file belongs to.

    >>> import numpy as np
    >>> find_run_numbers([RowRun("a-", "p", 2), RowRun("b-", "q", 1)], np.array([0, 2, 1])).tolist()
    [0, 1, 0]
    """
    import numpy as np

    ends = np.cumsum([run.rows for run in runs])
    return np.searchsorted(ends, positions, side="right")


def count_by_owner(store: "FileAccess", location: str, positions: "np.ndarray[Any, Any]") -> dict[str, int]:
    """Return how many of the rows at some positions of a shared data file each owner has."""
    import numpy as np

    runs = read_shared_runs(store, location)
    counts: dict[str, int] = {}
    for run, count in zip(runs, np.bincount(find_run_numbers(runs, positions), minlength=len(runs)), strict=True):
        if count:
            counts[run.owner] = counts.get(run.owner, 0) + int(count)
    return counts


def count_moved_rows(store: "FileAccess", added: Sequence["FileEntry"], removed: Sequence["FileEntry"]) -> int:
    """Return how many rows of removed files are also in added ones, because their pieces were moved."""
    if not any(is_shared(entry.path) for entry in (*added, *removed) if entry.is_data):
        return 0
    load_footers(store, (entry for entry in (*added, *removed) if entry.is_data))
    removed_counts = _count_rows_by_piece(store, removed)
    added_counts = _count_rows_by_piece(store, added)
    return sum(min(count, removed_counts.get(piece, 0)) for piece, count in added_counts.items())


def _count_rows_by_piece(store: "FileAccess", entries: Iterable["FileEntry"]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in entries:
        for run in list_runs(store, entry) if entry.is_data else ():
            counts[run.piece] = counts.get(run.piece, 0) + run.rows
    return counts


class OwnerLookup:
    """Looks up the owners of single rows, by the name of a data file and the position in it."""

    def __init__(self, store: "FileAccess", entries: Iterable["FileEntry"]) -> None:
        all_entries = [entry for entry in entries if entry.is_data]
        load_footers(store, all_entries)
        self._runs = {read_file_name(entry.path): list_runs(store, entry) for entry in all_entries}
        self._ends: dict[str, list[int]] = {}

    def find_owner(self, name: str, position: int) -> str | None:
        """Return the owner of a row; None if no source file owns it."""
        runs = self._runs[name]
        if len(runs) < 2:
            return runs[0].owner if runs else None
        if name not in self._ends:
            self._ends[name] = list(accumulate(run.rows for run in runs))
        return runs[bisect_right(self._ends[name], position)].owner


def _read_text(store: "FileAccess", location: str) -> bytes:
    with _guard:
        cached_text = _cached_texts.get(location)
    if cached_text is not None:
        return cached_text
    with open_parquet(store, location) as parquet:
        text: bytes | None = (parquet.metadata.metadata or {}).get(OWNERS_KEY.encode())
    if text is None:
        what = f"the data file {read_file_name(location)} does not say which source files its rows came from"
        raise CorruptData("LAKE_FILE_OWNERS", what, at=location, fix="run `runnel fsck`: the file may be damaged")
    with _guard:
        _cached_texts[location] = text
    return text


def open_parquet(store: "FileAccess", location: str) -> "pq.ParquetFile":
    """Open a Parquet file of the warehouse."""
    import pyarrow.parquet as pq

    try:
        if local_path(location) is not None:
            return pq.ParquetFile(normalize_location(location))
        return pq.ParquetFile(cast(Any, store.io.new_input(location).open()))
    except FileNotFoundError as error:
        raise missing_file_error(location) from error
