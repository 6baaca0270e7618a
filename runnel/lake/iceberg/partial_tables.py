"""Stage partial tables: copies of a version's metadata whose current snapshot lists only some of its files.

Schemas, partition specs, field ids and properties are those of the version, so that every engine reads the files as
in the version itself. Nothing points at a partial table until a run places it in a slot; gc sweeps it later. Data
files are never copied.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFileContent
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from runnel.errors import RunnelError
from runnel.lake.iceberg.manifests import FileEntry, SnapshotManifestWriter
from runnel.lake.iceberg.snapshots import new_snapshot_id
from runnel.lake.iceberg.table_metadata import load_metadata, stage_update

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_FORMAT_VERSION = 2


class PartialTableError(RunnelError):
    """No partial table can be made of a version; the caller must compute from the whole table."""

    def __init__(self, metadata: "TableMetadata", reason: str) -> None:
        super().__init__("SIDE_INDIVISIBLE", f"no part of the table in {metadata.location} can be read alone: {reason}")
        self.reason = reason


def stage_partial_table(store: "Store", location: str, entries: Sequence[FileEntry]) -> str:
    """Stage a version that has only `entries`, files of the version at `location`, and return its location.

    Data files and position deletes keep their sequence numbers, so that the same deletes apply to the same rows.
    Raises PartialTableError for equality deletes and for format versions other than 2.
    """
    base = load_metadata(store, location)
    if base.format_version != _FORMAT_VERSION:
        raise PartialTableError(base, f"it has Iceberg's format version {base.format_version}")
    if any(entry.is_equality_delete for entry in entries):
        raise PartialTableError(base, "rows were deleted by value, by another engine")
    empty_metadata = base.model_copy(
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
    manifest_writer = SnapshotManifestWriter(store, base, snapshot_id)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=None,
        sequence_number=sequence,
        timestamp_ms=max(int(time.time() * 1000), base.last_updated_ms + 1),
        manifest_list=manifest_writer.write_list(manifest_writer.write_existing(entries), sequence, None),
        summary=_build_summary(entries),
        schema_id=base.current_schema_id,
    )
    branch_ref = {"ref-name": MAIN_BRANCH, "snapshot-id": snapshot_id, "type": SnapshotRefType.BRANCH}
    updates = (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(branch_ref))
    return stage_update(store, empty_metadata, location, updates)[0]


def _build_summary(entries: Sequence[FileEntry]) -> Summary:
    def count_rows(content: DataFileContent) -> str:
        return str(sum(entry.file.record_count for entry in entries if entry.file.content == content))

    data_file_count = sum(1 for entry in entries if entry.is_data)
    totals = {
        "total-data-files": str(data_file_count),
        "total-delete-files": str(len(entries) - data_file_count),
        "total-records": count_rows(DataFileContent.DATA),
        "total-files-size": str(sum(entry.file.file_size_in_bytes for entry in entries)),
        "total-position-deletes": count_rows(DataFileContent.POSITION_DELETES),
        "total-equality-deletes": "0",
    }
    return Summary(Operation.APPEND, **totals)
