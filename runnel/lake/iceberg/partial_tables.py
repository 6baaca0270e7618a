"""Sides of a change as tables of their own: a version copied whole, whose current snapshot has only some of its files.

Schemas, partition specs, field ids and properties are those of the version, so that every engine reads the files as
it would there. Nothing points at a side until a run places it in a slot; gc sweeps it later. Files are never copied.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFileContent
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from runnel.errors import RunnelError
from runnel.lake.iceberg.manifests import Entry, Pen
from runnel.lake.iceberg.snapshots import new_snapshot_id
from runnel.lake.iceberg.table_metadata import load, update

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_FORMAT = 2


class Indivisible(RunnelError):
    """A version of which no part can be read by itself; the whole has to be computed."""

    def __init__(self, metadata: "TableMetadata", why: str) -> None:
        super().__init__("SIDE_INDIVISIBLE", f"no part of the table in {metadata.location} can be read alone: {why}")
        self.why = why


def side(store: "Store", location: str, entries: Sequence[Entry]) -> str:
    """Stage a version that has only `entries`, files of the version at `location`, and return where it is.

    Data files and position deletes keep their sequence numbers, so that the same deletes apply to the same rows.
    Raises Indivisible for equality deletes and other formats than v2.
    """
    base = load(store, location)
    if base.format_version != _FORMAT:
        raise Indivisible(base, f"it has Iceberg's format version {base.format_version}")
    if any(entry.is_equality_delete for entry in entries):
        raise Indivisible(base, "rows were deleted by value, by another engine")
    alone = base.model_copy(
        update={
            "snapshots": [],
            "snapshot_log": [],
            "refs": {},
            "current_snapshot_id": None,
            "statistics": [],
            "partition_statistics": [],
        }
    )
    snapshot_id, sequence = new_snapshot_id(base), base.next_sequence_number()
    pen = Pen(store, base, snapshot_id)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=sequence,
        timestamp_ms=max(int(time.time() * 1000), base.last_updated_ms + 1),
        manifest_list=pen.manifest_list(pen.existing(entries), sequence, None),
        summary=_summary(entries),
        schema_id=base.current_schema_id,
    )
    current = {"ref-name": MAIN_BRANCH, "snapshot-id": snapshot_id, "type": SnapshotRefType.BRANCH}
    updates = (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(current))
    return update(store, alone, location, updates)[0]


def _summary(entries: Sequence[Entry]) -> Summary:
    def rows(content: DataFileContent) -> str:
        return str(sum(entry.file.record_count for entry in entries if entry.file.content == content))

    data = sum(1 for entry in entries if entry.is_data)
    totals = {
        "total-data-files": str(data),
        "total-delete-files": str(len(entries) - data),
        "total-records": rows(DataFileContent.DATA),
        "total-files-size": str(sum(entry.file.file_size_in_bytes for entry in entries)),
        "total-position-deletes": rows(DataFileContent.POSITION_DELETES),
        "total-equality-deletes": "0",
    }
    return Summary(Operation.APPEND, **totals)
