"""How much a table changed between two versions, and how much it holds, counted in files: no rows are read."""

from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadata

from runnel.errors import Broken
from runnel.lake.diff.compaction_delta import change
from runnel.lake.diff.file_delta import Delta
from runnel.lake.iceberg.table_metadata import load
from runnel.plan.facts import Movement, Size

if TYPE_CHECKING:
    from runnel.lake.store import Store
    from runnel.names import TableName


def movement(store: "Store", table: "TableName", before: str, after: str) -> Movement:
    """Return how a table changed; not known where the older version is gone."""
    try:
        old, new = load(store, before), load(store, after)
        found = change(store, table, before, after)
    except Broken:
        return Movement(is_known=False)
    counted = _counted(found)
    if old.table_uuid != new.table_uuid:
        return replace(counted, columns_changed=True)
    was, now = _columns(old), _columns(new)
    kept = {field: now.get(field) for field in was}
    added = tuple(name for field, (name, _) in now.items() if field not in was)
    return replace(counted, columns_added=added, columns_changed=kept != was)


def size(store: "Store", location: str) -> Size:
    """Return how much a version holds, as its snapshot says."""
    snapshot = load(store, location).current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}

    def number(name: str) -> int:
        return int(summary.get(f"total-{name}", 0))

    return Size(number("records") - number("position-deletes"), number("files-size"), number("data-files"))


def _counted(found: Delta) -> Movement:
    added = [entry.file for entry in found.added if entry.is_data]
    removed = [entry.file for entry in found.removed if entry.is_data]
    return Movement(
        rows_added=sum(file.record_count for file in added),
        files_added=len(added),
        bytes_added=sum(file.file_size_in_bytes for file in added),
        rows_removed=sum(file.record_count for file in removed),
        files_removed=len(removed),
        bytes_removed=sum(file.file_size_in_bytes for file in removed),
        deletes=len(added) < len(found.added) or len(removed) < len(found.removed),
    )


def _columns(metadata: TableMetadata) -> dict[int, tuple[str, str]]:
    return {field.field_id: (field.name, str(field.field_type)) for field in metadata.schema().fields}
