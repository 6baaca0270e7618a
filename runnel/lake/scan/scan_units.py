"""Divide the files of a version into units of work that are about equally large, each with the deletes it needs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from runnel.lake.iceberg.file_io import local_path, normalize_location
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.scan.scan_sql import partition_of

UNIT_BYTES = 128 * 1024 * 1024
LEAST_UNIT_BYTES = 8 * 1024 * 1024  # reading less does not pay for a task
Item = TypeVar("Item")


@dataclass(frozen=True)
class ScanUnit:
    """Some data files of a version, and the delete files that may apply to them. `side` is that of its rows."""

    entries: tuple[FileEntry, ...]
    side: int = 0


def build_scan_units(
    manifest_entries: Iterable[FileEntry],
    parallel_units: int = 1,
    *,
    side: int = 0,
    unit_bytes: int = UNIT_BYTES,
    most_files: int | None = None,
) -> list[ScanUnit]:
    """Return units over all data files among the entries: enough for all that work at the same time, if it pays.

    A unit has at most `most_files` data files.
    """
    entries = list(manifest_entries)
    data = [entry for entry in entries if entry.is_data]
    deletes = [entry for entry in entries if not entry.is_data]
    groups = pack_files(data, read_size, parallel_units, unit_bytes=unit_bytes, most_files=most_files)
    return [ScanUnit((*group, *_find_deletes(group, deletes)), side) for group in groups]


def pack_files(
    items: Sequence[Item],
    get_bytes: Callable[[Item], int],
    parallel_units: int = 1,
    *,
    unit_bytes: int = UNIT_BYTES,
    most_files: int | None = None,
) -> list[list[Item]]:
    """Return files, or values that stand for one file each, in groups of at most `unit_bytes`, in their order."""
    share = sum(map(get_bytes, items)) // max(1, parallel_units)
    group_bytes = min(unit_bytes, max(LEAST_UNIT_BYTES, share))
    groups: list[list[Item]] = []
    room = 0
    for item in items:
        size = get_bytes(item)
        if not groups or size > room or len(groups[-1]) == most_files:
            groups.append([])
            room = group_bytes
        groups[-1].append(item)
        room -= size
    return groups


def count_bytes(manifest_entries: Iterable[FileEntry]) -> int:
    """Return the size of files."""
    return sum(read_size(entry) for entry in manifest_entries)


def list_outside_paths(warehouse: str, manifest_entries: Iterable[FileEntry]) -> Iterator[str]:
    """Yield the paths of files on a disk that were registered in place: all machines see the warehouse, not these."""
    prefix = normalize_location(warehouse) + "/"
    for entry in manifest_entries:
        if not normalize_location(entry.path).startswith(prefix) and (path := local_path(entry.path)) is not None:
            yield str(path)


def read_size(entry: FileEntry) -> int:
    """Return the size of a file."""
    return entry.file.file_size_in_bytes


def _find_deletes(data: Sequence[FileEntry], deletes: Sequence[FileEntry]) -> list[FileEntry]:
    partitions = {partition_of(entry) for entry in data}
    return [entry for entry in deletes if partition_of(entry) in partitions]
