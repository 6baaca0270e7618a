"""Merge two changes of a file table, path by path: copy the rows that theirs added, remove those that it removed.

It is a conflict if both sides gave one path different contents.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table.update import TableUpdate

from runnel.errors import join_names
from runnel.lake.diff.file_delta import compute_file_delta
from runnel.lake.files.file_commit import build_range_test, find_matching_files
from runnel.lake.files.file_rows import LiveFile, find_changed_paths, list_live_files, open_live_file
from runnel.lake.iceberg.parquet_writer import RowWriter
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_definition import IncompatibleChanges, combine_properties, extract_definition
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.merge.three_way import MergeSide

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store


@dataclass(frozen=True)
class FileReplay:
    """The paths whose rows in the version `base_location` are to become what they are in `theirs`."""

    base_location: str
    ancestor_location: str
    theirs: str
    paths: tuple[str, ...]
    updates: tuple[TableUpdate, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether the version to start from already has all changes."""
        return not (self.paths or self.updates)

    @property
    def result(self) -> tuple[object, ...]:
        """Return a value that is equal for two replays with the same result."""
        return (self.base_location, self.theirs, self.paths, str(self.updates))

    def stage(self, store: "Store") -> str:
        """Write the version and return its location; nothing points at it yet."""
        target_metadata, their_metadata = load_metadata(store, self.base_location), load_metadata(store, self.theirs)
        added_entries = [
            entry for entry in compute_file_delta(store, self.ancestor_location, self.theirs).added if entry.is_data
        ]
        added = _copy_rows(
            store,
            target_metadata,
            their_metadata,
            list_live_files(store, their_metadata, added_entries),
            self.paths,
            keep=True,
        )
        matching_files = find_matching_files(store, target_metadata, self.paths)
        for matching_file in matching_files:
            added += _copy_rows(
                store, target_metadata, target_metadata, [matching_file.live_file], self.paths, keep=False
            )
        removed_entries = [matching_file.live_file.entry for matching_file in matching_files]
        return stage_version(
            store, self.base_location, VersionEdit(added=added, removed=removed_entries, updates=self.updates)
        )


def replay_files(store: "Store", base: str, ours: MergeSide, theirs: MergeSide) -> FileReplay:
    """Return how to apply to `ours` the paths that `theirs` changed since `base`, or raise IncompatibleChanges."""
    base_metadata, our_metadata, their_metadata = (
        load_metadata(store, location) for location in (base, ours.location, theirs.location)
    )
    if not extract_definition(base_metadata) == extract_definition(our_metadata) == extract_definition(their_metadata):
        raise IncompatibleChanges("its columns or its layout were changed")
    our_changes, their_changes = (
        find_changed_paths(store, base, ours.location),
        find_changed_paths(store, base, theirs.location),
    )
    conflicting = sorted(
        path for path in our_changes.keys() & their_changes.keys() if our_changes[path] != their_changes[path]
    )
    if conflicting:
        raise IncompatibleChanges(f"both sides changed {join_names(conflicting)}")
    updates = combine_properties(base_metadata.properties, our_metadata.properties, their_metadata.properties)
    return FileReplay(
        ours.location, base, theirs.location, tuple(sorted(their_changes.keys() - our_changes.keys())), updates
    )


def _copy_rows(
    store: "Store",
    target: "TableMetadata",
    source: "TableMetadata",
    live_files: Sequence[LiveFile],
    paths: Sequence[str],
    *,
    keep: bool,
) -> list[DataFile]:
    """Write rows of data files to new data files: those of `paths` if `keep`, else all others."""
    writer = RowWriter(store, target)
    columns = [field.name for field in target.schema().fields]
    chosen = pa.array(paths, pa.large_string())
    for rows in _read_batches(store, source, live_files, columns, paths if keep else None):
        is_chosen = pc.is_in(rows["path"].cast(pa.large_string()), value_set=chosen)
        writer.write(rows.filter(is_chosen if keep else pc.invert(is_chosen)))
    return writer.close()


def _read_batches(
    store: "Store",
    metadata: "TableMetadata",
    live_files: Sequence[LiveFile],
    columns: list[str],
    paths: Sequence[str] | None,
) -> Iterator[pa.Table]:
    may_contain = build_range_test(paths) if paths is not None else None
    for live_file in live_files:
        with open_live_file(store, metadata, live_file) as reader:
            for group in (
                range(reader.file.metadata.num_row_groups)
                if may_contain is None
                else reader.find_row_groups(may_contain)
            ):
                yield from reader.read_group(
                    group, columns, batch_rows=1024
                )  # contents are inline, so a batch is large
