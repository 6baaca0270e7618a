"""Stage a new version of a table from files added and removed.

The one way in which Runnel itself writes Iceberg: appends, overwrites, replays of merges, compactions. Files may
belong to any partition spec of the table; one manifest is written per spec.
"""

import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate

from runnel.errors import Broken, Mistake
from runnel.lake.iceberg.manifests import Entry, Pen, entries_in, has_equality_deletes, manifests, merged
from runnel.lake.iceberg.table_metadata import check_writable, load, update
from runnel.phase_timer import phase

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class Edit:
    """What a new version adds and removes. `removed` are entries of the base version, data or deletes."""

    added: Sequence[DataFile] = ()
    removed: Sequence[Entry] = ()
    taken: Sequence[Entry] = ()  # files that another version of the same table has, added with the age of their rows
    rewrites: bool = False  # the rows stay the same: a compaction
    sequence: int | None = None  # for rewritten rows: how old they are
    summary: dict[str, str] = field(default_factory=dict)
    updates: tuple[TableUpdate, ...] = ()  # schema, spec or property changes that go along
    gathers: bool = False  # write all manifests anew, in as few as possible

    @property
    def operation(self) -> Operation:
        """Return what Iceberg calls it."""
        if self.rewrites:
            return Operation.REPLACE
        if not self.removed:
            deletes = any(file.content != DataFileContent.DATA for file in self.files)
            return Operation.OVERWRITE if deletes else Operation.APPEND
        return Operation.OVERWRITE if self.files else Operation.DELETE

    @property
    def files(self) -> list[DataFile]:
        """Return every file that comes."""
        return [*self.added, *(entry.file for entry in self.taken)]


@phase("write")
def stage(store: "Store", base_location: str, edit: Edit) -> str:
    """Write a version that differs from `base_location` by `edit` and return its location; nothing points at it yet."""
    base = load(store, base_location)
    check_writable(base)
    if edit.updates:
        from pyiceberg.table.update import update_table_metadata

        base = update_table_metadata(base, edit.updates, metadata_location=base_location)
    snapshot_id = new_snapshot_id(base)
    pen = Pen(store, base, snapshot_id)
    found = pen.added(edit.added, edit.sequence) if edit.added else []
    found += pen.taken(edit.taken, base.next_sequence_number()) if edit.taken else []
    if edit.gathers:
        found += _gathered(store, pen, manifests(store, base), edit.removed)
    else:
        found = merged(store, pen, found + _without(store, pen, manifests(store, base), edit.removed))
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
        kept.extend(_rewritten(store, pen, manifest, [entry for entry in live if entry.path not in wanted], gone))
        wanted -= {entry.path for entry in gone}
    if wanted:
        raise _not_listed(wanted)
    return kept


def _rewritten(
    store: "Store", pen: Pen, manifest: ManifestFile, left: Sequence[Entry], gone: Sequence[Entry]
) -> list[ManifestFile]:
    if not has_equality_deletes(store, manifest):
        return pen.rewritten(left, gone)
    if left:
        what = f"{manifest.manifest_path} lists deletes by value, which only another engine can write anew"
        raise Mistake("TABLE_EQUALITY_DELETES", what, fix="rewrite the table's files with Spark, then repeat")
    return []  # nothing of it is left, so it is not needed; it would only tell what is gone


def _gathered(store: "Store", pen: Pen, found: Iterable[ManifestFile], removed: Sequence[Entry]) -> list[ManifestFile]:
    """Return new manifests that carry everything of the base over, except `removed`, files of a partition together."""
    live = [entry for manifest in found for entry in entries_in(store, manifest)]
    wanted = {entry.path for entry in removed}
    gone = [entry for entry in live if entry.path in wanted]
    if wanted - {entry.path for entry in gone}:
        raise _not_listed(wanted - {entry.path for entry in gone})
    kept = [entry for entry in live if entry.path not in wanted]
    return pen.rewritten(sorted(kept, key=lambda entry: (str(entry.file.partition), entry.sequence)), gone)


def _not_listed(wanted: set[str]) -> Broken:
    return Broken("LAKE_FILE_NOT_LISTED", f"{sorted(wanted)[0]} is not part of the version that is to lose it")


def _summary(edit: Edit, parent: Snapshot | None, found: Sequence[ManifestFile]) -> Summary:
    came, went = _counted(edit.files), _counted([entry.file for entry in edit.removed])
    before = parent.summary.additional_properties if parent and parent.summary else {}
    shown = {}
    for name, (added, removed) in _COUNTS.items():
        shown[f"total-{name}"] = str(max(int(before.get(f"total-{name}", 0)) + came[name] - went[name], 0))
        shown |= {added: str(came[name])} if came[name] else {}
        shown |= {removed: str(went[name])} if went[name] else {}
    return Summary(edit.operation, **{**shown, **edit.summary})


_COUNTS = {
    "data-files": ("added-data-files", "deleted-data-files"),
    "delete-files": ("added-delete-files", "removed-delete-files"),
    "records": ("added-records", "deleted-records"),
    "files-size": ("added-files-size", "removed-files-size"),
    "position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


def _counted(files: Sequence[DataFile]) -> dict[str, int]:
    def rows(content: DataFileContent) -> int:
        return sum(file.record_count for file in files if file.content == content)

    data = sum(1 for file in files if file.content == DataFileContent.DATA)
    return {
        "data-files": data,
        "delete-files": len(files) - data,
        "records": rows(DataFileContent.DATA),
        "files-size": sum(file.file_size_in_bytes for file in files),
        "position-deletes": rows(DataFileContent.POSITION_DELETES),
        "equality-deletes": rows(DataFileContent.EQUALITY_DELETES),
    }
