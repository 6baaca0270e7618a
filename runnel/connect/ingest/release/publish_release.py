"""Publish a release: the rows that the table accepted, and a quarantine table without them, in one commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.connect.ingest.batch_reader import IngestBatch
from runnel.declare.model.flow import Source, quarantine_table_of
from runnel.errors import plural
from runnel.lake.diff.content_id import content_of_files
from runnel.lake.flow_state.ingest_position import ProcessedFile
from runnel.lake.flow_state.ingest_positions import read_position
from runnel.lake.history.commits import Commit, CommitChange, read_sequence
from runnel.lake.iceberg.data_file_owners import (
    is_shared,
    make_file_name,
    read_file_id,
    read_file_name,
    read_origin,
    read_owner_prefix,
)
from runnel.lake.iceberg.manifests import FileEntry, read_entries
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.owners.row_runs import list_runs, load_footers
from runnel.lake.publish import CommitDraft, publish
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    from runnel.lake.store import Store


@dataclass(frozen=True)
class ReleaseBase:
    """The state of a branch that an attempt at a release starts from."""

    branch: str
    commit: Commit
    planned_sequence: int
    table: TableVersion | None
    quarantine: TableVersion | None

    @property
    def table_location(self) -> str | None:
        """Return the location of the table's version, if there is the table."""
        return self.table.location if self.table is not None else None


def read_base(store: "Store", source: Source, branch: str) -> ReleaseBase:
    """Return the current state of a branch."""
    planned_sequence, commit, state = store.db.read(read_sequence), store.commit(branch), store.state(branch)
    return ReleaseBase(
        branch, commit, planned_sequence, state.get(source.table), state.get(quarantine_table_of(source.table))
    )


def publish_release(
    store: "Store",
    source: Source,
    base: ReleaseBase,
    batch: IngestBatch,
    owners: Mapping[str, str],
    *,
    staged_quarantine: str,
    pin: str,
) -> Commit | None:
    """Publish the rows of `batch` and the staged version of the quarantine table; return None if nothing changes.

    `owners` are those of the rows, by the name of the file that was read.
    """
    changes: list[CommitChange] = []
    if base.quarantine is not None and staged_quarantine != base.quarantine.location:
        quarantine_table = quarantine_table_of(source.table)
        changes.append(CommitChange(quarantine_table, base.quarantine.location, staged_quarantine, staged_quarantine))
    rows = batch.written.rows
    if rows:
        changes.append(_stage_table_change(store, source, batch, base.table))
    if not changes:
        return None
    processed_files = (
        store.db.read(lambda connection: read_position(connection, base.commit, source.table)) if rows else {}
    )
    live_entries = _list_data_files(store, base.table) if rows else ()
    draft = CommitDraft(
        base.branch,
        f"release {plural(rows, 'row')} of {source.table}",
        store.author,
        tuple(changes),
        kind="release",
        expected_head=base.commit.id,
        planned_sequence=base.planned_sequence,
        pin=pin,
        processed_files=tuple(
            (source.table, entry)
            for entry in _extend_processed_files(store, processed_files, batch, owners, live_entries)
        ),
    )
    return publish(store.db, draft)


def _stage_table_change(
    store: "Store", source: Source, batch: IngestBatch, table_version: TableVersion | None
) -> CommitChange:
    added = batch.written.files
    target = batch.target
    location = stage_version(store, target.location, VersionEdit(added=added, updates=target.updates))
    names = sorted(file.file_path.rpartition("/")[2] for file in added)
    content = content_of_files(table_version.content if table_version else None, [f"released:{name}" for name in names])
    return CommitChange(source.table, table_version.location if table_version else None, location, content)


def _list_data_files(store: "Store", version: TableVersion | None) -> tuple[FileEntry, ...]:
    return (
        tuple(entry for entry in read_entries(store, load_metadata(store, version.location)) if entry.is_data)
        if version
        else ()
    )


def _extend_processed_files(
    store: "Store",
    processed_files: Mapping[str, ProcessedFile],
    batch: IngestBatch,
    owners: Mapping[str, str],
    live_entries: Sequence[FileEntry],
) -> tuple[ProcessedFile, ...]:
    """Return the updated records of source files whose rows are now in more data files, under their current names.

    `live_entries` are the data files that the table had. After a revert they may stem from an earlier read of a file.
    """
    by_owner = {owner: entry for entry in processed_files.values() for owner in entry.all_owners}
    added_locations: dict[str, list[str]] = {}
    for path, locations in batch.written.locations_by_path.items():
        if owners.get(path) in by_owner:
            added_locations.setdefault(by_owner[owners[path]].path, []).extend(locations)
    return tuple(
        replace(
            processed_files[path],
            files=(*_list_owned_files(store, processed_files, path, live_entries), *locations),
            owners=processed_files[path].all_owners,
        )
        for path, locations in added_locations.items()
    )


def _list_owned_files(
    store: "Store", processed_files: Mapping[str, ProcessedFile], path: str, live_entries: Sequence[FileEntry]
) -> list[str]:
    """Return the data files that the rows of a file were first written to: of recorded files, and of its owners."""
    files_of_others = {
        read_file_name(file)
        for other in processed_files.values()
        if other.path != path and not other.is_removed
        for file in other.files
    }
    recorded, owned = {read_file_name(file) for file in processed_files[path].files}, processed_files[path].all_owners
    own_files = [
        entry.path
        for entry in live_entries
        if not is_shared(entry.path)
        and (read_file_name(entry.path) in recorded or read_owner_prefix(entry.path) in owned)
        and read_file_name(entry.path) not in files_of_others
    ]
    return [*own_files, *_list_origins(store, processed_files[path], live_entries)]


def _list_origins(store: "Store", processed_file: ProcessedFile, live_entries: Sequence[FileEntry]) -> list[str]:
    """Return the data files that the rows of a file in shared data files were first written to; they may be gone."""
    shared_entries = [entry for entry in live_entries if is_shared(entry.path)]
    load_footers(store, shared_entries)
    locations_by_id = {read_file_id(file): file for file in processed_file.files}
    origins = {
        read_origin(run.piece)
        for entry in shared_entries
        for run in list_runs(store, entry)
        if run.owner in processed_file.all_owners
    }
    return [locations_by_id.get(origin) or make_file_name(None, origin) for origin in sorted(origins)]
