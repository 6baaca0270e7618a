"""List the files of a table, reading no contents."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from runnel.lake.files.file_rows import LiveFile, column_values, list_live_files, read_path_bounds, scan_rows
from runnel.lake.files.file_table import load_at_ref
from runnel.lake.files.paths import Glob

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("path", "size", "modified_at", "sha256")


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file of the lake; a column that another engine did not fill is None."""

    path: str
    size: int | None
    modified_at: datetime | None
    sha256: str | None


def list_files(store: "Store", table: "TableName", glob: str | None = None, *, at: str = "main") -> Iterator[FileRow]:
    """Yield the files of a table at a ref that match a glob, ordered by path."""
    _, metadata = load_at_ref(store, table, at)
    return _read_listing(store, metadata, Glob(glob) if glob is not None else None)


def _read_listing(store: "Store", metadata: TableMetadata, glob: Glob | None) -> Iterator[FileRow]:
    for group in _group_by_path_range(metadata, list_live_files(store, metadata)):
        scanned_rows = scan_rows(store, metadata, group, _COLUMNS, glob.may_match_between if glob else None)
        tables = [table.filter(glob.matches(table["path"])) if glob else table for _, _, table in scanned_rows]
        if tables:
            rows = pa.concat_tables(tables).sort_by("path")
            for first in range(0, rows.num_rows, 8192):
                yield from _to_file_rows(rows.slice(first, 8192))


def _group_by_path_range(metadata: TableMetadata, live_files: list[LiveFile]) -> Iterator[list[LiveFile]]:
    """Yield data files in groups with disjoint, ascending path ranges, so that only one group is sorted at a time."""
    bounded_files = sorted(
        ((read_path_bounds(metadata, live_file.entry), live_file) for live_file in live_files),
        key=lambda bounded_file: bounded_file[0][0] or "",
    )
    group: list[LiveFile] = []
    group_highest: str | None = ""
    for (lowest, highest), live_file in bounded_files:
        if group and lowest is not None and group_highest is not None and lowest > group_highest:
            yield group
            group, group_highest = [], ""
        group.append(live_file)
        group_highest = None if group_highest is None or highest is None else max(group_highest, highest)
    if group:
        yield group


def _to_file_rows(rows: pa.Table) -> Iterator[FileRow]:
    for path, size, microseconds, sha256 in zip(*(column_values(rows, name) for name in _COLUMNS), strict=True):
        yield FileRow(path, size, _to_datetime(microseconds), sha256)


def _to_datetime(microseconds: int | None) -> datetime | None:
    """Return a time of the table, or None if it is missing or out of Python's range."""
    if microseconds is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None
