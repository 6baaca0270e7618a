"""Merge two changes of one table file by file (three-way merge), without comparing rows.

Both changes start from one version. For each partition: if only one side changed it, that change is taken; if both
only appended, both appends are taken; if one side only compacted, the other side's change is taken; a change that both
made is taken once. Anything else is a conflict. Position deletes belong to the partition of their rows.

In the table of a file source each source file takes the place of a partition. If source files share data files, the
result may need some rows of a data file: these are copied to a new one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.table.update import TableUpdate

from runnel.lake.diff.file_delta import FileDelta, compute_file_delta
from runnel.lake.iceberg.data_file_owners import is_shared
from runnel.lake.iceberg.manifests import FileEntry
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_definition import IncompatibleChanges, combine_properties, extract_definition
from runnel.lake.iceberg.table_metadata import UnwritableTable, check_writable, load_metadata
from runnel.lake.owners.row_parts import (
    FileExcerpt,
    PartDelta,
    RowPart,
    compute_part_delta,
    plan_part_edit,
    write_excerpts,
)
from runnel.lake.scan.scan_sql import partition_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.merge.merge_sources import ThreeWayPositions
    from runnel.lake.store import Store

PartitionId = tuple[int, object] | str | None
"""A partition, by its spec and values; None is the whole table, if partitions can't be compared.

A string is the path of a source file.
"""


@dataclass(frozen=True)
class MergeStep:
    """One change of a table in its history; `is_rewrite` if its rows stayed the same."""

    before: str | None
    after: str | None
    is_rewrite: bool


@dataclass(frozen=True)
class MergeSide:
    """One of the two versions: its name in conflict messages, and the history that led to it, read on demand."""

    name: str
    location: str
    read_steps: Callable[[], Sequence[MergeStep]] = field(default=lambda: (), compare=False)


@dataclass(frozen=True)
class MergeEdit:
    """A version to start from, and the edit that applies the other side's change to it."""

    base_location: str
    added: tuple[FileEntry, ...] = ()
    removed: tuple[FileEntry, ...] = ()
    updates: tuple[TableUpdate, ...] = ()
    excerpts: tuple[FileExcerpt, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether the version to start from already contains the other side's change."""
        return not (self.added or self.removed or self.updates or self.excerpts)

    @property
    def result(self) -> tuple[object, ...]:
        """Return a value that is equal for two edits that produce the same version."""
        paths = (frozenset(entry.path for entry in side_entries) for side_entries in (self.added, self.removed))
        excerpts = frozenset((excerpt.entry.path, excerpt.pieces) for excerpt in self.excerpts)
        return (self.base_location, *paths, str(self.updates), excerpts)

    def stage(self, store: "Store") -> str:
        """Write the version and return its location; nothing points at it yet."""
        edit = VersionEdit(write_excerpts(store, self.excerpts), self.removed, reused=self.added, updates=self.updates)
        return stage_version(store, self.base_location, edit)


@dataclass(frozen=True)
class _PartitionChange:
    """The files, or parts of rows, that one side added to and removed from one partition, by key."""

    added: dict[str, RowPart] = field(default_factory=dict)
    removed: dict[str, RowPart] = field(default_factory=dict)

    @property
    def is_append(self) -> bool:
        return not self.removed and all(part.is_data for part in self.added.values())

    @property
    def is_undone_append(self) -> bool:
        return not self.added and all(part.is_data for part in self.removed.values())

    @property
    def keys(self) -> tuple[frozenset[str], frozenset[str]]:
        return frozenset(self.added), frozenset(self.removed)


def plan_merge_edit(
    store: "Store",
    base: str,
    ours: MergeSide,
    theirs: MergeSide,
    *,
    undo: bool = False,
    source_positions: "ThreeWayPositions | None" = None,
    paths: Mapping[str, str] | None = None,
) -> MergeEdit:
    """Return the edit that applies to `ours` what `theirs` changed since `base`, or raise Clash.

    The edit starts from the side that changed columns or partitions, if one did. With `undo` the change is the inverse
    of a commit: files that it appended are removed, whatever others did since, if they still exist. Rows of source
    files are merged per source file: `source_positions` says what both sides have read. For an undo, `paths` maps the
    owners of data files to source files; a source file that was read again since is a conflict.
    """
    start, other = _choose_start(store, base, ours, theirs, undo)
    start_changes, other_changes = (
        compute_file_delta(store, base, start.location),
        compute_file_delta(store, base, other.location),
    )
    for side, file_changes in ((start, start_changes), (other, other_changes)):
        if any(entry.is_equality_delete for entry in (*file_changes.added, *file_changes.removed)):
            raise IncompatibleChanges(f"rows were deleted by value on {side.name}, by another engine")
    specs = {
        entry.file.spec_id
        for file_changes in (start_changes, other_changes)
        for entry in (*file_changes.added, *file_changes.removed)
    }
    ignore_partitions = len(specs) > 1
    if not specs <= load_metadata(store, start.location).specs().keys():
        raise IncompatibleChanges(f"{start.name} no longer has a partition spec that files of {other.name} use")
    updates = combine_properties(
        *(load_metadata(store, location).properties for location in (base, start.location, other.location))
    )
    owned_paths = (
        _map_owned_paths(source_positions, start_changes, other_changes) if paths is None else _OwnedPaths(paths)
    )
    grouping = _Grouping(store, ignore_partitions, owned_paths)
    merge = _PartitionMerge(
        store,
        start,
        other,
        grouping.group_changes(start_changes),
        grouping.group_changes(other_changes),
        grouping,
        undo,
        source_positions.same_paths if source_positions else frozenset(),
        source_positions.differing_paths if source_positions else frozenset(),
    )
    added: list[RowPart] = []
    removed: list[RowPart] = []
    for key in merge.other_changes:
        added_in_partition, removed_in_partition = merge.resolve(key)
        added += added_in_partition
        removed += removed_in_partition
    file_edit = plan_part_edit(store, start.location, other.location, added, removed)
    edit = MergeEdit(start.location, file_edit.added, file_edit.removed, updates, file_edit.excerpts)
    try:
        if not edit.is_empty:
            check_writable(load_metadata(store, start.location))
    except UnwritableTable as error:
        raise IncompatibleChanges(error.what) from error
    return edit


def _choose_start(
    store: "Store", base: str, ours: MergeSide, theirs: MergeSide, undo: bool
) -> tuple[MergeSide, MergeSide]:
    """Return the side to start from and the side to apply; a side that changed the table's definition is the start."""
    base_metadata, our_metadata, their_metadata = (
        load_metadata(store, location) for location in (base, ours.location, theirs.location)
    )
    for side, metadata in ((ours, our_metadata), (theirs, their_metadata)):
        if metadata.table_uuid != base_metadata.table_uuid:
            raise IncompatibleChanges(f"it was dropped and created again on {side.name}")
    base_definition, our_definition, their_definition = (
        extract_definition(base_metadata),
        extract_definition(our_metadata),
        extract_definition(their_metadata),
    )
    if their_definition in (base_definition, our_definition):
        return ours, theirs
    if undo:
        # Files written since use field ids that the old schema would assign again.
        raise IncompatibleChanges("the commit changed its columns, partitions or order, and rows were written since")
    if our_definition == base_definition:
        return theirs, ours
    raise IncompatibleChanges("both sides changed its columns, partitions or order")


@dataclass(frozen=True)
class _OwnedPaths:
    """The source files of rows: by their owner, or by the data file that an ingest recorded for a source file."""

    by_owner: Mapping[str, str]
    by_file: Mapping[str, str] = field(default_factory=dict)


def _map_owned_paths(
    source_positions: "ThreeWayPositions | None", start_changes: FileDelta, other_changes: FileDelta
) -> _OwnedPaths | None:
    """Return the source files of rows, if they are merged by source file; deletes belong to partitions."""
    if source_positions is None:
        return None
    if all(
        entry.is_data
        for file_changes in (start_changes, other_changes)
        for entry in (*file_changes.added, *file_changes.removed)
    ):
        return _OwnedPaths(source_positions.paths_by_owner, source_positions.paths_by_file)
    if shared_paths := sorted(source_positions.same_paths | source_positions.differing_paths):
        raise IncompatibleChanges(f"both sides read {shared_paths[0]}, and rows were deleted by another engine")
    return None


@dataclass(frozen=True)
class _Grouping:
    """How changes are grouped: by source file, else by partition."""

    store: "Store"
    ignore_partitions: bool
    owned_paths: _OwnedPaths | None

    def group_changes(self, file_changes: FileDelta) -> dict[PartitionId, _PartitionChange]:
        """Return the changes of each partition or source file."""
        part_delta = self._compute_parts(file_changes)
        partitions: dict[PartitionId, _PartitionChange] = {}
        for key, part in part_delta.added.items():
            partitions.setdefault(self._find_partition(part), _PartitionChange()).added[key] = part
        for key, part in part_delta.removed.items():
            partitions.setdefault(self._find_partition(part), _PartitionChange()).removed[key] = part
        return partitions

    def _compute_parts(self, file_changes: FileDelta) -> PartDelta:
        if self.owned_paths is not None:
            return compute_part_delta(self.store, file_changes.added, file_changes.removed)
        added, removed = (
            {entry.path: RowPart(entry.path, None, (entry,)) for entry in entries}
            for entries in (file_changes.added, file_changes.removed)
        )
        return PartDelta(added, removed)

    def _find_partition(self, part: RowPart) -> PartitionId:
        entry, path = part.entries[0], None
        if self.owned_paths is not None:
            recorded_path = self.owned_paths.by_file.get(entry.path) if not is_shared(entry.path) else None
            path = recorded_path or self.owned_paths.by_owner.get(part.owner or "")
        return path or (None if self.ignore_partitions else partition_of(entry))


@dataclass(frozen=True)
class _PartitionMerge:
    """Both sides' changes, by partition."""

    store: "Store"
    start: MergeSide
    other: MergeSide
    start_changes: Mapping[PartitionId, _PartitionChange]
    other_changes: Mapping[PartitionId, _PartitionChange]
    grouping: _Grouping
    undo: bool
    same_paths: frozenset[str]
    different_paths: frozenset[str]
    _append_only: dict[str, dict[PartitionId, bool]] = field(default_factory=dict)

    def resolve(self, key: PartitionId) -> tuple[Iterable[RowPart], Iterable[RowPart]]:
        """Return the parts to add to and to remove from one partition of the start."""
        start_change, other_change = self.start_changes.get(key, _PartitionChange()), self.other_changes[key]
        if start_change.keys == other_change.keys or key in self.same_paths:
            return (), ()
        if key in self.different_paths:
            raise IncompatibleChanges(f"both sides read {key}, with different contents")
        if not (start_change.added or start_change.removed):
            return other_change.added.values(), other_change.removed.values()
        if self.undo and isinstance(key, str):
            raise IncompatibleChanges(f"{key} was read again since, or its rows were released or taken back")
        if start_change.is_append and other_change.is_append:
            return _exclude_present(other_change.added, start_change.added), ()
        if (
            self.undo
            and other_change.is_undone_append
            and not other_change.removed.keys() & start_change.removed.keys()
        ):
            return (), other_change.removed.values()
        return self._resolve_rewritten(key, start_change, other_change)

    def _resolve_rewritten(
        self, key: PartitionId, start_change: _PartitionChange, other_change: _PartitionChange
    ) -> tuple[Iterable[RowPart], Iterable[RowPart]]:
        """Resolve a partition from which files were removed: either rows changed, or it was compacted."""
        start_appended, other_appended = (
            self._has_only_appended(self.start, key),
            self._has_only_appended(self.other, key),
        )
        if other_appended is None:
            return (), ()
        if start_appended is None:  # the start only compacted: take the other side's files
            added = [
                *_exclude_present(other_change.added, start_change.added),
                *_exclude_present(start_change.removed, other_change.removed),
            ]
            return added, [
                *_exclude_present(start_change.added, other_change.added),
                *_exclude_present(other_change.removed, start_change.removed),
            ]
        if start_appended and other_appended:
            if other_change.is_append:
                return _exclude_present(other_change.added, start_change.added), ()
            if start_change.is_append:
                return _exclude_present(other_change.added, start_change.added), other_change.removed.values()
            raise IncompatibleChanges(f"both sides appended to and compacted {self._describe_partition(key)}")
        raise IncompatibleChanges(f"both sides changed {self._describe_partition(key)}")

    def _has_only_appended(self, side: MergeSide, key: PartitionId) -> bool | None:
        """Return whether a side only appended to a partition, ignoring compactions; None if it did not change it."""
        if side.name not in self._append_only:
            self._append_only[side.name] = self._read_append_only(side)
        return self._append_only[side.name].get(key)

    def _read_append_only(self, side: MergeSide) -> dict[PartitionId, bool]:
        steps = side.read_steps()
        append_only: dict[PartitionId, bool] = {}
        has_several_specs = (
            len(load_metadata(self.store, side.location).partition_specs) > 1 and not self.grouping.ignore_partitions
        )
        if has_several_specs or not any(step.is_rewrite for step in steps):
            # A compaction may move rows to another partition spec, in which the earlier steps can't be found.
            side_changes = self.start_changes if side is self.start else self.other_changes
            return {key: change.is_append for key, change in side_changes.items()}
        for step in steps:
            if not step.is_rewrite:
                file_changes = compute_file_delta(self.store, step.before, step.after)
                for key, change in self.grouping.group_changes(file_changes).items():
                    append_only[key] = append_only.get(key, True) and change.is_append
        return append_only

    def _describe_partition(self, key: PartitionId) -> str:
        metadata: TableMetadata = load_metadata(self.store, self.start.location)
        if key is None:
            return "its rows, under different partitions"
        if isinstance(key, str):
            return f"the rows of {key}"
        spec = metadata.specs()[key[0]]
        if spec.is_unpartitioned():
            return "its rows, not only by appending"
        return f"rows of {spec.partition_to_path(key[1], metadata.schema())}"  # type: ignore[arg-type]


def _exclude_present(parts: Mapping[str, RowPart], present: Mapping[str, RowPart]) -> list[RowPart]:
    return [part for key, part in parts.items() if key not in present]
