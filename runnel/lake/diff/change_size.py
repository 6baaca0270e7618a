"""Measure how much a table changed between two versions, and how large it is, from file metadata: reads no rows.

Rows of source files that were only moved to another data file, because they share it with rows that changed, count as
unchanged.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadata

from runnel.errors import CorruptData
from runnel.lake.diff.compaction_delta import compute_change
from runnel.lake.diff.file_delta import FileDelta
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.owners.row_runs import count_moved_rows
from runnel.model.change_size import ChangeSize, VersionSize

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


def measure_change(store: "Store", table: "TableName", before: str, after: str) -> ChangeSize:
    """Return how a table changed; unknown if the older version is deleted."""
    try:
        old, new = load_metadata(store, before), load_metadata(store, after)
        file_delta = compute_change(store, table, before, after)
    except CorruptData:
        return ChangeSize(is_known=False)
    change_size = _count_changes(file_delta, count_moved_rows(store, file_delta.added, file_delta.removed))
    if old.table_uuid != new.table_uuid:
        return replace(change_size, columns_changed=True, is_recreated=True)
    old_columns, new_columns = _columns_by_id(old), _columns_by_id(new)
    retained_columns = {field: new_columns.get(field) for field in old_columns}
    added = tuple(name for field, (name, _) in new_columns.items() if field not in old_columns)
    return replace(change_size, columns_added=added, columns_changed=retained_columns != old_columns)


def read_table_size(store: "Store", location: str) -> VersionSize:
    """Return the size of a version, from its snapshot's summary."""
    snapshot = load_metadata(store, location).current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}

    def read_total(name: str) -> int:
        return int(summary.get(f"total-{name}", 0))

    return VersionSize(
        read_total("records") - read_total("position-deletes"), read_total("files-size"), read_total("data-files")
    )


def _count_changes(file_delta: FileDelta, moved_rows: int) -> ChangeSize:
    added = [entry.file for entry in file_delta.added if entry.is_data]
    removed = [entry.file for entry in file_delta.removed if entry.is_data]
    return ChangeSize(
        rows_added=sum(file.record_count for file in added) - moved_rows,
        files_added=len(added),
        bytes_added=sum(file.file_size_in_bytes for file in added),
        rows_removed=sum(file.record_count for file in removed) - moved_rows,
        files_removed=len(removed),
        bytes_removed=sum(file.file_size_in_bytes for file in removed),
        deletes=len(added) < len(file_delta.added) or len(removed) < len(file_delta.removed),
    )


def _columns_by_id(metadata: TableMetadata) -> dict[int, tuple[str, str]]:
    return {field.field_id: (field.name, str(field.field_type)) for field in metadata.schema().fields}
