"""Rewrite data files without erased rows: the work units of the second step of an erasure.

A unit is rewritten in this process or on an executor of Spark. Nothing points at the new files until the erasure is
published.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.table_metadata import drop_history
from runnel.lake.owners.file_stripper import strip_rows
from runnel.lake.scan.scan_units import pack_files
from runnel.lake.upkeep import position_deletes
from runnel.lake.upkeep.position_set import PositionSet
from runnel.lake.warehouse_files import WarehouseFiles
from runnel.model.work_place import EXECUTORS

if TYPE_CHECKING:
    from runnel.lake.work_runner import ReportUnits, WorkRunner

_MOST_FILES = 200
RewriteKey = tuple[str, frozenset[str]]
"""A data file, and the delete files that apply to it in a version."""


@dataclass(frozen=True)
class FileRewrite:
    """A data file to be rewritten without the rows at some positions, and without those that `deletes` name.

    Recorded positions of deleted rows would not fit the new file. With `keep_empty`, a file without rows is written.
    """

    entry: FileEntry
    positions: PositionSet = field(repr=False)
    deletes: tuple[FileEntry, ...]
    keep_empty: bool

    @property
    def key(self) -> RewriteKey:
        """Return what identifies the rewritten file."""
        return self.entry.path, frozenset(delete.path for delete in self.deletes)

    @property
    def bytes(self) -> int:
        """Return the size of the old file."""
        return self.entry.file.file_size_in_bytes


@dataclass(frozen=True)
class RewriteUnit:
    """Some files to be rewritten; `metadata` needs no snapshots."""

    metadata: TableMetadata = field(repr=False)
    rewrites: tuple[FileRewrite, ...]


@dataclass(frozen=True)
class StrippedFile:
    """A new file, None if no row is left and none was to be written, and its number of rows."""

    file: DataFile | None
    rows: int


@dataclass(frozen=True)
class FileRewriter:
    """Rewrites the files of a unit; can be pickled."""

    files: WarehouseFiles

    def __call__(self, unit: RewriteUnit) -> list[StrippedFile]:
        """Write the new files, and return them in order."""
        return [self._rewrite(unit.metadata, rewrite) for rewrite in unit.rewrites]

    def _rewrite(self, metadata: TableMetadata, rewrite: FileRewrite) -> StrippedFile:
        deleted_positions = position_deletes.read_positions(rewrite.deletes, rewrite.entry)
        removed_positions = np.union1d(rewrite.positions.to_array(), deleted_positions)
        return StrippedFile(
            *strip_rows(self.files, metadata, rewrite.entry, removed_positions, keep_empty=rewrite.keep_empty)
        )


class RewrittenFiles:
    """The files that were rewritten already. Each is written once, however many versions list the old file."""

    def __init__(self, files: WarehouseFiles) -> None:
        self._rewriter = FileRewriter(files)
        self._files: dict[RewriteKey, StrippedFile] = {}

    def add(
        self, rewrites: Iterable[tuple[TableMetadata, FileRewrite]], runner: "WorkRunner", report_units: "ReportUnits"
    ) -> None:
        """Rewrite the files that are not rewritten yet; each comes with the metadata of a version that lists it."""
        units = list(_build_units(self._select_missing(rewrites), runner))
        for unit, new_files in zip(units, runner.run(self._rewriter, units, report_units), strict=True):
            self._files |= {rewrite.key: new_file for rewrite, new_file in zip(unit.rewrites, new_files, strict=True)}

    def get(self, key: RewriteKey, *, keep_empty: bool) -> DataFile | None:
        """Return the file that replaces another one; None if no row is left, unless `keep_empty` asks for a file."""
        new_file = self._files[key]
        return new_file.file if new_file.rows or keep_empty else None

    def _select_missing(
        self, rewrites: Iterable[tuple[TableMetadata, FileRewrite]]
    ) -> "Mapping[RewriteKey, tuple[TableMetadata, FileRewrite]]":
        missing: dict[RewriteKey, tuple[TableMetadata, FileRewrite]] = {}
        for metadata, rewrite in rewrites:
            existing = self._files.get(rewrite.key)
            if existing is not None and (existing.file is not None or not rewrite.keep_empty):
                continue
            _, earlier = missing.setdefault(rewrite.key, (metadata, rewrite))
            if rewrite.keep_empty and not earlier.keep_empty:
                missing[rewrite.key] = (metadata, replace(earlier, keep_empty=True))
        return missing


def _build_units(
    rewrites: "Mapping[RewriteKey, tuple[TableMetadata, FileRewrite]]", runner: "WorkRunner"
) -> Iterator[RewriteUnit]:
    """Yield units of files whose versions agree in what their metadata says about files."""
    groups: dict[str, list[tuple[TableMetadata, FileRewrite]]] = {}
    for metadata, rewrite in rewrites.values():
        groups.setdefault(repr(sorted(metadata.properties.items())), []).append((metadata, rewrite))
    most_files = _MOST_FILES if runner.place.name == EXECUTORS else 1
    for group in groups.values():
        metadata = drop_history(group[0][0])
        requests = [rewrite for _, rewrite in group]
        for unit in pack_files(requests, lambda rewrite: rewrite.bytes, runner.parallel_units, most_files=most_files):
            yield RewriteUnit(metadata, tuple(unit))
