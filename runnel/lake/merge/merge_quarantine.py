"""Merge quarantine tables: their rows belong to the table that set them aside. Reads no rows.

Rows that a task set aside are computed together with its table. Rows of a source of files are merged file by file, and
those of a feed come from the side from which the merge takes the source's table.
"""

from typing import TYPE_CHECKING

from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.table_definition import IncompatibleChanges, extract_definition
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.merge.revert_sources import find_source_table
from runnel.lake.merge.three_way import MergeEdit
from runnel.lake.owners.row_parts import plan_part_edit, split_into_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.lake.merge.merge_sources import ThreeWayPositions
    from runnel.lake.store import Store
    from runnel.model.table_version import TableVersion
    from runnel.names import TableName


def find_quarantine_owner(
    store: "Store", table: "TableName", versions: "Iterable[TableVersion | None]"
) -> "TableName | None":
    """Return the table that set aside the rows of a quarantine table; None for any other table."""
    owner = find_source_table(store, table, versions)
    return owner if owner != table else None


def has_same_files(store: "Store", theirs: "TableVersion", positions: "ThreeWayPositions") -> bool:
    """Return whether each quarantined row of theirs is from a file that our side read with the same contents."""
    paths, same = positions.paths_by_owner, positions.same_paths
    parts = split_into_parts(store, read_entries(store, load_metadata(store, theirs.location)))
    return all(paths.get(part.owner or "") in same for part in parts.values())


def combine_created_quarantines(
    store: "Store", ours: "TableVersion", theirs: "TableVersion", positions: "ThreeWayPositions"
) -> MergeEdit:
    """Return the edit that adds the rows of the files that only their side read; both sides created the table."""
    our_metadata, their_metadata = (load_metadata(store, version.location) for version in (ours, theirs))
    if extract_definition(our_metadata) != extract_definition(
        their_metadata.model_copy(update={"location": our_metadata.location})
    ):
        raise IncompatibleChanges("both sides created it, with different columns, partitions or order")
    paths, added_parts = positions.paths_by_owner, []
    for part in split_into_parts(store, read_entries(store, their_metadata)).values():
        path = paths.get(part.owner or "")
        if path is None or not part.is_data:
            raise IncompatibleChanges("both sides created it, and not all of its rows belong to a file of the source")
        if path in positions.differing_paths:
            raise IncompatibleChanges(f"both sides read {path}, with different contents")
        if path not in positions.same_paths:
            added_parts.append(part)
    file_edit = plan_part_edit(store, ours.location, theirs.location, added_parts, ())
    return MergeEdit(ours.location, file_edit.added, excerpts=file_edit.excerpts)
