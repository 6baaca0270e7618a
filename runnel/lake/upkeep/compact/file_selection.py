"""Choose which files of a version a compaction rewrites.

Small files of a partition are merged, and files with position deletes are rewritten without the deleted rows. Reads
manifests and delete files; writes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.conversions import from_bytes
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from runnel.lake.iceberg.data_file_owners import MAX_RUNS
from runnel.lake.iceberg.file_io import normalize_location
from runnel.lake.iceberg.manifests import MAX_ENTRIES, MERGE_COUNT, FileEntry, read_entries, read_manifests
from runnel.lake.owners.row_runs import list_runs, load_footers
from runnel.lake.scan.scan_sql import check_scannable, normalize_file_path
from runnel.lake.upkeep import position_deletes

if TYPE_CHECKING:
    from runnel.lake.store import Store

SMALL_SHARE = 0.5  # of the target size: a smaller file is merged with others
SORTED_BIN_SHARE = 4  # of the target size: files of a sorted table are merged in larger groups, so that fewer overlap
OWNED_BIN_SHARE = 8  # of the target size, which is small if rows have owners: the overhead of many tiny files vanishes


@dataclass(frozen=True)
class TargetPartition:
    """The partition of a spec that rewritten rows go to."""

    spec_id: int
    partition: Record


@dataclass(frozen=True)
class FileGroup:
    """Data files to be rewritten into new files of one partition, with the deletes that apply to them.

    A group is small enough to be rewritten at once: the files of a large partition form several groups.
    """

    target_partition: TargetPartition
    data: tuple[FileEntry, ...]
    deletes: tuple[FileEntry, ...]
    rows: int  # after the deletes are applied


@dataclass(frozen=True)
class CompactionPlan:
    """What a compaction does to a version. `dropped_deletes` are delete files that no longer apply to any file."""

    groups: tuple[FileGroup, ...]
    dropped_deletes: tuple[FileEntry, ...]
    merges_manifests: bool  # there are too many manifests

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.groups and not self.dropped_deletes and not self.merges_manifests

    @property
    def replaced_files(self) -> tuple[FileEntry, ...]:
        """Return the data files that are rewritten."""
        return tuple(entry for group in self.groups for entry in group.data)

    @property
    def rewritten_bytes(self) -> int:
        """Return the size of the data files that are rewritten."""
        return sum(entry.file.file_size_in_bytes for entry in self.replaced_files)


def plan_compaction(
    store: "Store",
    metadata: TableMetadata,
    target_bytes: int,
    *,
    force: bool,
    only_small: bool = False,
    only_owned: bool = False,
) -> CompactionPlan:
    """Return what a compaction has to do. Files outside the warehouse are rewritten only with `force`.

    With `only_small`, large files are left alone even if rows of them are deleted. With `only_owned`, files are left
    alone unless it is known from which source file each row came; many runs of rows make a file large, too. Files with
    deleted rows are left alone then: merges and reverts take a piece that was moved for the same rows.

    Raises Unscannable if only Spark can apply some of the deletes.
    """
    live_entries = list(read_entries(store, metadata))
    data = [entry for entry in live_entries if entry.is_data]
    deletes = [entry for entry in live_entries if not entry.is_data]
    check_scannable(metadata, deletes)
    deletes_by_file = _match_deletes(data, deletes)
    if only_owned:
        load_footers(store, data)
    run_counts = {entry.path: len(list_runs(store, entry)) for entry in data} if only_owned else {}
    candidates: dict[TargetPartition, list[FileEntry]] = {}
    for entry in data:
        run_count = run_counts.get(entry.path, 0)
        if only_owned and (not run_count or entry.path in deletes_by_file):
            continue
        is_small = entry.file.file_size_in_bytes < SMALL_SHARE * target_bytes and run_count < SMALL_SHARE * MAX_RUNS
        has_deleted_rows = entry.path in deletes_by_file and not only_small
        is_selected = is_small or has_deleted_rows if is_in_warehouse(store, entry.path) else force
        if is_selected:
            candidates.setdefault(choose_partition(metadata, entry), []).append(entry)
    deletes_to_apply = {} if only_small else deletes_by_file
    selected_groups = [
        (partition, files)
        for partition, partition_files in candidates.items()
        for files in _form_bins(metadata, partition_files, target_bytes, run_counts)
        if len(files) > 1 or _is_rewritten_alone(store, files[0], deletes_to_apply)
    ]
    groups = [_build_group(partition, files, deletes_by_file) for partition, files in selected_groups]
    rewritten_paths = {entry.path for group in groups for entry in group.data}
    in_use = {delete.path for path, files in deletes_by_file.items() if path not in rewritten_paths for delete in files}
    dropped = [entry for entry in deletes if entry.path not in in_use]
    touched_manifests = {entry.manifest for entry in [*dropped, *(entry for group in groups for entry in group.data)]}
    return CompactionPlan(
        tuple(groups), tuple(dropped), _needs_manifest_merge(store, metadata, live_entries, len(touched_manifests))
    )


def _form_bins(
    metadata: TableMetadata, files: list[FileEntry], target_bytes: int, run_counts: Mapping[str, int]
) -> list[list[FileEntry]]:
    """Return the files of a partition in groups that are rewritten at once.

    If their rows have owners, `run_counts` has the runs of each file. Such files keep their order, and those of a group
    have no more runs than one file may have.
    """
    if run_counts:
        return _split_into_bins(files, OWNED_BIN_SHARE * target_bytes, run_counts)
    bin_bytes = target_bytes * (SORTED_BIN_SHARE if metadata.sort_order().fields else 1)
    return _split_into_bins(_sort_by_lower_bound(metadata, files), bin_bytes, {})


def _split_into_bins(
    files: Sequence[FileEntry], bin_bytes: int, run_counts: Mapping[str, int]
) -> list[list[FileEntry]]:
    """Return the files in groups, in order, of about `bin_bytes` each; a last file joins the group before it."""
    bins: list[list[FileEntry]] = []
    size, runs = bin_bytes, list[int]()
    for entry in files:
        run_count = run_counts.get(entry.path, 0)
        if size >= bin_bytes or runs[-1] + run_count > MAX_RUNS:
            bins.append([])
            runs.append(0)
            size = 0
        bins[-1].append(entry)
        runs[-1] += run_count
        size += entry.file.file_size_in_bytes
    if len(bins) > 1 and len(bins[-1]) == 1 and sum(runs[-2:]) <= MAX_RUNS:
        last_bin = bins.pop()
        bins[-1].extend(last_bin)
    return bins


def _sort_by_lower_bound(metadata: TableMetadata, files: list[FileEntry]) -> list[FileEntry]:
    """Return files in the order of the smallest value of the column that the table is sorted by first, if any."""
    sort_fields = metadata.sort_order().fields
    column = metadata.schema().find_field(sort_fields[0].source_id) if sort_fields else None
    if column is None or not isinstance(column.field_type, PrimitiveType):
        return files
    field_type = column.field_type

    def read_lower_bound(entry: FileEntry) -> tuple[bool, Any]:
        bound = (entry.file.lower_bounds or {}).get(column.field_id)
        return (False, 0) if bound is None else (True, from_bytes(field_type, bound))

    return sorted(files, key=read_lower_bound)


def _is_rewritten_alone(store: "Store", entry: FileEntry, deletes_by_file: Mapping[str, object]) -> bool:
    """Return whether a file is rewritten even if there is no other file to merge it with."""
    return entry.path in deletes_by_file or not is_in_warehouse(store, entry.path)


def is_in_warehouse(store: "Store", path: str) -> bool:
    """Return whether a file is in the warehouse; if not, it was registered in place."""
    return normalize_location(path).startswith(normalize_location(store.warehouse) + "/")


def choose_partition(metadata: TableMetadata, entry: FileEntry) -> TargetPartition:
    """Return the partition of the current spec that holds all rows of a file, else the file's own partition.

    A file of an old spec moves only if the old spec has every field of the current one: then its new partition
    follows from its old one.
    """
    file, current_spec = entry.file, metadata.spec()
    own_partition = TargetPartition(file.spec_id, file.partition)
    if file.spec_id == current_spec.spec_id:
        return own_partition
    fields = metadata.specs()[file.spec_id].fields
    values = {(field.source_id, str(field.transform)): file.partition[index] for index, field in enumerate(fields)}
    partition_values = []
    for field in current_spec.fields:
        key = (field.source_id, str(field.transform))
        if key not in values and not isinstance(field.transform, VoidTransform):
            return own_partition
        partition_values.append(values.get(key))
    return TargetPartition(current_spec.spec_id, Record(*partition_values))


def _match_deletes(data: Sequence[FileEntry], deletes: Sequence[FileEntry]) -> dict[str, list[FileEntry]]:
    """Return the deletes that apply to each data file; files without deletes are left out."""
    names_by_delete = position_deletes.read_data_file_names(deletes)
    by_name = {normalize_file_path(entry.path): entry for entry in data}
    deletes_by_file: dict[str, list[FileEntry]] = {}
    for delete in deletes:
        for name in names_by_delete[delete.path] & by_name.keys():
            if position_deletes.applies_to(delete, by_name[name], names_by_delete):
                deletes_by_file.setdefault(by_name[name].path, []).append(delete)
    return deletes_by_file


def _build_group(
    partition: TargetPartition, data: list[FileEntry], deletes_by_file: Mapping[str, list[FileEntry]]
) -> FileGroup:
    pairs = [(delete, entry) for entry in data for delete in deletes_by_file.get(entry.path, ())]
    deleted_counts = position_deletes.count_deleted_rows(pairs)
    rows = sum(entry.file.record_count - deleted_counts.get(entry.path, 0) for entry in data)
    return FileGroup(partition, tuple(data), tuple({delete.path: delete for delete, _ in pairs}.values()), rows)


def _needs_manifest_merge(
    store: "Store", metadata: TableMetadata, live_entries: Sequence[FileEntry], touched_count: int
) -> bool:
    """Return whether the version has far more manifests than its files need, or most are rewritten anyway."""
    counts: dict[tuple[int, bool], int] = {}
    for entry in live_entries:
        key = (entry.file.spec_id, entry.is_data)
        counts[key] = counts.get(key, 0) + 1
    needed = sum(-(-count // MAX_ENTRIES) for count in counts.values())
    manifest_count = len(read_manifests(store, metadata))
    return manifest_count > 2 * needed + MERGE_COUNT or (touched_count > 1 and 2 * touched_count >= manifest_count)
