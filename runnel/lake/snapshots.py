"""Stage a new version of a table from files added and removed.

The one way in which Runnel itself writes Iceberg: appends, overwrites, replays of merges, compactions. Files may
belong to any partition spec of the table; one manifest is written per spec.
"""

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate

from runnel.errors import Broken
from runnel.lake.manifests import Entry, Pen, entries_in, manifests, merged
from runnel.lake.tables import load, update

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class Edit:
    """What a new version adds and removes. `removed` are entries of the base version, data or deletes."""

    added: Sequence[DataFile] = ()
    removed: Sequence[Entry] = ()
    rewrites: bool = False  # the rows stay the same: a compaction
    sequence: int | None = None  # for rewritten rows: how old they are
    summary: dict[str, str] = field(default_factory=dict)
    updates: tuple[TableUpdate, ...] = ()  # schema, spec or property changes that go along

    @property
    def operation(self) -> Operation:
        """Return what Iceberg calls it."""
        if self.rewrites:
            return Operation.REPLACE
        if not self.removed:
            return Operation.APPEND
        return Operation.OVERWRITE if self.added else Operation.DELETE


def stage(store: "Store", base_location: str, edit: Edit) -> str:
    """Write a version that differs from `base_location` by `edit` and return its location; nothing points at it yet."""
    base = load(store, base_location)
    if edit.updates:
        from pyiceberg.table.update import update_table_metadata

        base = update_table_metadata(base, edit.updates, metadata_location=base_location)
    snapshot_id = new_snapshot_id(base)
    pen = Pen(store, base, snapshot_id)
    found = pen.added(edit.added, edit.sequence) if edit.added else []
    found += _without(store, pen, manifests(store, base), edit.removed)
    found = merged(store, pen, found)
    sequence, parent = base.next_sequence_number(), base.current_snapshot()
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence,
        timestamp_ms=max(int(time.time() * 1000), base.last_updated_ms + 1),
        manifest_list=pen.manifest_list(found, sequence, parent.snapshot_id if parent else None),
        summary=_summary(edit, parent, found),
        schema_id=base.current_schema_id,
    )
    current = {"ref-name": MAIN_BRANCH, "snapshot-id": snapshot_id, "type": SnapshotRefType.BRANCH}
    updates = (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(current))
    return update(store, base, base_location, updates)[0]


def new_snapshot_id(metadata: TableMetadata) -> int:
    """Return an unused snapshot id."""
    used = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    while (found := secrets.randbits(62)) in used:
        pass
    return found


def _without(store: "Store", pen: Pen, found: Iterable[ManifestFile], removed: Sequence[Entry]) -> list[ManifestFile]:
    """Return the base's manifests, those with removed files rewritten; every removed file must be found."""
    wanted = {entry.path for entry in removed}
    named = {entry.manifest for entry in removed}
    kept: list[ManifestFile] = []
    # The manifests that the entries came from are looked into first; usually nothing else has to be read.
    for manifest in sorted(found, key=lambda manifest: manifest.manifest_path not in named):
        if not wanted:
            kept.append(manifest)
            continue
        live = entries_in(store, manifest)
        gone = [entry for entry in live if entry.path in wanted]
        if not gone:
            kept.append(manifest)
            continue
        wanted -= {entry.path for entry in gone}
        kept.extend(pen.rewritten([entry for entry in live if entry not in gone], gone))
    if wanted:
        raise Broken("LAKE_FILE_NOT_LISTED", f"{sorted(wanted)[0]} is not part of the version that is to lose it")
    return kept


def _summary(edit: Edit, parent: Snapshot | None, found: Sequence[ManifestFile]) -> Summary:
    counted = {
        "added-data-files": sum(1 for file in edit.added if file.content == 0),
        "added-delete-files": sum(1 for file in edit.added if file.content != 0),
        "added-records": sum(file.record_count for file in edit.added if file.content == 0),
        "added-files-size": sum(file.file_size_in_bytes for file in edit.added),
        "deleted-data-files": sum(1 for entry in edit.removed if entry.is_data),
        "removed-delete-files": sum(1 for entry in edit.removed if not entry.is_data),
        "deleted-records": sum(entry.file.record_count for entry in edit.removed if entry.is_data),
        "added-position-deletes": sum(file.record_count for file in edit.added if file.content == 1),
        "removed-position-deletes": sum(e.file.record_count for e in edit.removed if e.file.content == 1),
        "removed-files-size": sum(entry.file.file_size_in_bytes for entry in edit.removed),
    }
    before = parent.summary.additional_properties if parent and parent.summary else {}

    def total(name: str, added: str, removed: str) -> str:
        return str(max(int(before.get(name, 0)) + counted[added] - counted[removed], 0))

    totals = {
        "total-data-files": total("total-data-files", "added-data-files", "deleted-data-files"),
        "total-delete-files": total("total-delete-files", "added-delete-files", "removed-delete-files"),
        "total-records": total("total-records", "added-records", "deleted-records"),
        "total-position-deletes": total("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
        "total-files-size": total("total-files-size", "added-files-size", "removed-files-size"),
    }
    shown = {name: str(count) for name, count in counted.items() if count}
    return Summary(edit.operation, **{**shown, **totals, **edit.summary})
