"""List the files of a table, reading no contents."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from runnel.lake.files.file_rows import Part, bounds, parts, scan, values
from runnel.lake.files.file_table import at_ref
from runnel.lake.files.paths import Glob

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("path", "size", "modified_at", "sha256")


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file of the lake; what another engine left out is None."""

    path: str
    size: int | None
    modified_at: datetime | None
    sha256: str | None


def ls(store: "Store", table: "TableName", glob: str | None = None, *, at: str = "main") -> Iterator[FileRow]:
    """Yield the files of a table at a ref that match a glob, ordered by path."""
    _, metadata = at_ref(store, table, at)
    return _listing(store, metadata, Glob(glob) if glob is not None else None)


def _listing(store: "Store", metadata: TableMetadata, glob: Glob | None) -> Iterator[FileRow]:
    for group in _apart(metadata, parts(store, metadata)):
        found = scan(store, metadata, group, _COLUMNS, glob.may_span if glob else None)
        tables = [table.filter(glob.matches(table["path"])) if glob else table for _, _, table in found]
        if tables:
            rows = pa.concat_tables(tables).sort_by("path")
            for first in range(0, rows.num_rows, 8192):
                yield from _rows(rows.slice(first, 8192))


def _apart(metadata: TableMetadata, found: list[Part]) -> Iterator[list[Part]]:
    """Yield data files in groups that follow each other by path, so that only one group is sorted at a time."""
    spans = sorted(((bounds(metadata, part.entry), part) for part in found), key=lambda one: one[0][0] or "")
    group: list[Part] = []
    reach: str | None = ""
    for (lowest, highest), part in spans:
        if group and lowest is not None and reach is not None and lowest > reach:
            yield group
            group, reach = [], ""
        group.append(part)
        reach = None if reach is None or highest is None else max(reach, highest)
    if group:
        yield group


def _rows(rows: pa.Table) -> Iterator[FileRow]:
    for path, size, microseconds, sha256 in zip(*(values(rows, name) for name in _COLUMNS), strict=True):
        yield FileRow(path, size, _moment(microseconds), sha256)


def _moment(microseconds: int | None) -> datetime | None:
    """Return a time of the table, or None where it is none that Python knows."""
    if microseconds is None:
        return None
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None
