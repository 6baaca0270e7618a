"""Release quarantined rows: read them through their source again, as they are or corrected. Publishes one commit.

Good rows are added to the table as rows of the file that they came from: if that file changes, they are replaced with
its other rows. Rows that are still bad stay in quarantine, with the current reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.ingest.batch_reader import IngestBatch, read_batch
from runnel.connect.ingest.ingest import IngestTarget
from runnel.connect.ingest.release.release_files import PreparedRelease, StillBadRow, prepare_release
from runnel.connect.load import quarantine
from runnel.connect.load.quarantined_row import QuarantinedRow
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
from runnel.lake.leases.pins import acquire_pin
from runnel.lake.owners.row_runs import list_runs, load_footers
from runnel.lake.publish import CommitDraft, publish, retry_on_conflict
from runnel.model.table_version import TableVersion

if TYPE_CHECKING:
    from runnel.lake.store import Store

_ATTEMPTS = 5


@dataclass(frozen=True)
class ReleaseResult:
    """How many rows were to be released, how many the table accepted, and how many are still bad.

    `still_bad` are the bad rows, with their current reason. `missing` counts the rows that stay in quarantine because
    the corrected file does not have them, `unknown` the rows of that file that are not in quarantine any more.
    """

    rows: int
    accepted: int
    bad: int
    commit: Commit | None
    still_bad: tuple[StillBadRow, ...] = ()
    missing: int = 0
    unknown: int = 0


def release_rows(
    store: "Store",
    source: Source,
    root: Path,
    chosen_rows: Sequence[QuarantinedRow],
    corrected: Path | None = None,
    *,
    branch: str = "main",
) -> ReleaseResult:
    """Read `chosen_rows` through the source again, or in their place the rows of the file `corrected`."""
    with temp_dirs.create_scoped("release") as folder, acquire_pin(store.db, "write") as pin:
        prepared = prepare_release(source, root, chosen_rows, corrected, Path(folder))
        if not prepared.files:
            return _make_result(prepared, 0, (), None)
        return retry_on_conflict(lambda: _release_once(store, prepared, branch=branch, pin=pin), _ATTEMPTS)


def _release_once(store: "Store", prepared: PreparedRelease, *, branch: str, pin: str) -> ReleaseResult:
    planned, commit = store.db.read(read_sequence), store.commit(branch)
    source, owners = prepared.source, prepared.owners
    state, quarantine_table = store.state(branch), quarantine_table_of(source.table)
    table_version, quarantine_version = state.get(source.table), state[quarantine_table]
    ingest_target = IngestTarget(store, source, table_version.location if table_version else None, run="release")
    batch = read_batch(ingest_target, prepared.files, from_scratch=table_version is None, owners=owners)
    rows = batch.written.rows
    prepared.check_counts(rows, batch.dropped)
    still_bad = tuple(prepared.restore_origin(row) for row in batch.set_aside.rows)
    if not rows and batch.dropped == len(prepared.replaced_rows):
        return _make_result(prepared, 0, still_bad, None)
    staged_quarantine = quarantine.replace_rows(
        store, quarantine_version.location, prepared.replaced_rows, [bad_row.row for bad_row in still_bad]
    )
    changes = (
        [CommitChange(quarantine_table, quarantine_version.location, staged_quarantine, staged_quarantine)]
        if staged_quarantine != quarantine_version.location
        else []
    )
    if rows:
        changes.append(_stage_table_change(store, source, batch, table_version))
    if not changes:
        return _make_result(prepared, 0, still_bad, None)
    message = f"release {plural(rows, 'row')} of {source.table}"
    processed_files = store.db.read(lambda connection: read_position(connection, commit, source.table)) if rows else {}
    live_entries = _list_data_files(store, table_version) if rows else ()
    draft = CommitDraft(
        branch,
        message,
        store.author,
        tuple(changes),
        kind="release",
        expected_head=commit.id,
        planned_sequence=planned,
        pin=pin,
        processed_files=tuple(
            (source.table, entry)
            for entry in _extend_processed_files(store, processed_files, batch, owners, live_entries)
        ),
    )
    return _make_result(prepared, rows, still_bad, publish(store.db, draft))


def _make_result(
    prepared: PreparedRelease, accepted: int, still_bad: tuple[StillBadRow, ...], commit: Commit | None
) -> ReleaseResult:
    all_bad = tuple(sorted((*still_bad, *prepared.uncorrected), key=lambda bad_row: bad_row.line or 0))
    rows = len(prepared.replaced_rows) + len(prepared.uncorrected)
    return ReleaseResult(rows, accepted, len(all_bad), commit, all_bad, prepared.missing, prepared.unknown)


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
