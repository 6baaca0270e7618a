"""Ingest the changed files of a source: read them together, write the rows by file, stage one version."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.ingest import failpoints
from runnel.connect.ingest.bad_rows import QuarantineTarget, load_quarantine_metadata
from runnel.connect.ingest.batch_reader import IngestBatch, prepare_target, read_batch
from runnel.connect.ingest.detect.file_changes import FileChanges, ProcessedFilesLoader
from runnel.connect.ingest.detect.listing import is_object_url
from runnel.connect.ingest.detect.local_files import drop_empty_files, fetch_objects, list_files, warn_of_empty_files
from runnel.connect.ingest.detect.unchanged_check import describe_changed_file, find_changed_files
from runnel.connect.ingest.ingest import IngestResult, IngestTarget
from runnel.connect.ingest.replaced_files import ReplacedFiles, find_replaced_files
from runnel.connect.load import quarantine
from runnel.errors import RunnelError
from runnel.lake.diff.content_id import content_of_files
from runnel.lake.iceberg import table_metadata, table_properties
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.owners.row_parts import write_excerpts
from runnel.model.work_place import EXECUTORS

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from runnel.lake.store import Store

_ATTEMPTS = 3


def ingest_files(
    target: IngestTarget, root: Path, file_changes: FileChanges, load_processed_files: ProcessedFilesLoader
) -> IngestResult:
    """Stage the next version of a source's table. If all rows are read with new options, the table is recreated.

    If files change while they are read, the others are read again without them: a changed file may have determined a
    column's type.
    """
    store, base, quarantine_metadata = target.store, target.base, load_quarantine_metadata(target)
    for _ in range(_ATTEMPTS):
        replaced_files = find_replaced_files(store, base, file_changes, load_processed_files)
        from_scratch = base is None or (file_changes.has_new_read_options and replaced_files.is_everything)
        try:
            batch = _read_files(target, root, file_changes, quarantine_metadata, from_scratch=from_scratch)
            failpoints.reach(failpoints.READ)
        except RunnelError:
            changed_paths = find_changed_files(root, file_changes, store.storage)
            if not changed_paths:
                raise
        else:
            changed_paths = find_changed_files(root, file_changes, store.storage)
            if not changed_paths:
                staged_quarantine = _stage_quarantine(target, file_changes, batch, quarantine_metadata)
                return _stage_ingest(
                    target, file_changes, batch, replaced_files, staged_quarantine, from_scratch=from_scratch
                )
        remaining = file_changes.exclude_paths(changed_paths)
        if base is None and remaining.is_empty:
            break
        if remaining.is_empty and base is not None:
            return IngestResult(
                base, file_changes.content_before or "", 0, 0, remaining.moved_files, unfinished=remaining.unfinished
            )
        file_changes = remaining
    raise describe_changed_file(min(changed_paths))


def _read_files(
    target: IngestTarget,
    root: Path,
    file_changes: FileChanges,
    quarantine_metadata: "TableMetadata | None",
    *,
    from_scratch: bool,
) -> IngestBatch:
    store, source = target.store, target.source
    quarantine_target = QuarantineTarget(quarantine_metadata) if quarantine_metadata is not None else None
    listed_files = list_files(root, file_changes.files_to_read)
    owners = {source_file.path: source_file.owned[0] for source_file in file_changes.files_to_read}
    local_paths = [file.path for file in listed_files if not is_object_url(file.path)]
    runner = target.choose_runner(sum(file.bytes for file in listed_files), local_paths)
    if runner.place.name == EXECUTORS:
        from runnel.connect.ingest.units.unit_batch import read_batch_in_units

        batch = read_batch_in_units(
            target, listed_files, runner, owners, from_scratch=from_scratch, quarantine=quarantine_target
        )
        return replace(batch, place=runner.place)
    with temp_dirs.create_scoped("ingest") as folder:
        local_files = fetch_objects(listed_files, store.storage, Path(folder), target.report_progress)
        files = drop_empty_files(source, local_files)
        filled_names = {file.name for file in files}
        warnings = warn_of_empty_files([file.name for file in local_files if file.name not in filled_names])
        if not files:
            empty_target = prepare_target(store, source, (), target.base, from_scratch=from_scratch)
            return IngestBatch(empty_target, warnings=warnings)
        batch = read_batch(
            target,
            files,
            from_scratch=from_scratch,
            skip_unreadable=source.on_bad != "stop",
            owners=owners,
            quarantine=quarantine_target,
        )
        return replace(batch, place=runner.place, warnings=(*batch.warnings, *warnings))


def _stage_ingest(
    target: IngestTarget,
    file_changes: FileChanges,
    batch: IngestBatch,
    replaced_files: ReplacedFiles,
    staged_quarantine: tuple[str, str] | None,
    *,
    from_scratch: bool,
) -> IngestResult:
    location = _stage_version(target.store, batch, replaced_files, from_scratch=from_scratch)
    failpoints.reach(failpoints.STAGED)
    return IngestResult(
        location=location,
        content=_compute_content(target, file_changes, batch, replaced_files, location, from_scratch=from_scratch),
        rows=batch.written.rows,
        files=len(file_changes.files_to_read),
        processed_files=file_changes.list_processed_files(batch.written.locations_by_path, batch.incomplete),
        dropped=batch.dropped,
        quarantine=staged_quarantine,
        new_columns=batch.new_columns,
        unread_reasons=batch.unread_reasons,
        unfinished=file_changes.unfinished,
        warnings=batch.warnings,
        place=batch.place,
    )


def _stage_version(store: "Store", batch: IngestBatch, replaced_files: ReplacedFiles, *, from_scratch: bool) -> str:
    added = batch.written.files
    if from_scratch:
        return stage_version(store, batch.target.location, VersionEdit(added=added)) if added else batch.target.location
    excerpts = write_excerpts(store, replaced_files.excerpts)
    return stage_version(
        store,
        batch.target.location,
        VersionEdit([*added, *excerpts], replaced_files.entries, updates=batch.target.updates),
    )


def _compute_content(
    target: IngestTarget,
    file_changes: FileChanges,
    batch: IngestBatch,
    replaced_files: ReplacedFiles,
    location: str,
    *,
    from_scratch: bool,
) -> str:
    """Return the content id of the staged version; it is unique if it is uncertain which rows were removed.

    That is so if the content before was not the sum of the files that were read: released rows may be removed, too.
    """
    undeclared_before = (
        table_metadata.load_metadata(target.store, target.base).properties.get(table_properties.UNDECLARED, "")
        if target.base is not None
        else ""
    )
    undeclared_after = batch.target.undeclared
    added_columns, removed_columns = (
        ([undeclared_after], [undeclared_before]) if undeclared_after != undeclared_before else ([], [])
    )
    added_identities = [source_file.identity for source_file in file_changes.files_to_read]
    if from_scratch:
        content, removed_columns = content_of_files(None, added_identities), []
        added_columns = [undeclared_after]
    elif replaced_files.is_exact and (file_changes.content is not None or not file_changes.replaced_files):
        content = content_of_files(file_changes.content_before, added_identities, replaced_files.identities)
    else:
        return content_of_files(location, ())
    return content_of_files(content, filter(None, added_columns), filter(None, removed_columns))


def _stage_quarantine(
    target: IngestTarget, file_changes: FileChanges, batch: IngestBatch, metadata: "TableMetadata | None"
) -> tuple[str, str] | None:
    """Stage the quarantine table with the bad rows, which replace those of earlier reads of the same files."""
    base, set_aside = target.quarantine, batch.set_aside
    if base is None:
        if metadata is None or not (set_aside.files or set_aside.rows):
            return None
        base = table_metadata.write_metadata(target.store, metadata, None)
    replaced_owners = {owner for source_file in file_changes.files_to_read for owner in source_file.owned}
    replaced_owners |= {owner for old in file_changes.replaced_files for owner in old.all_owners}
    owners = {source_file.path: source_file.owned[0] for source_file in file_changes.files_to_read}
    removed_owners = replaced_owners if target.quarantine else ()
    location = quarantine.replace_owned_rows(
        target.store, base, set_aside.rows, removed_owners, owners=owners, files=set_aside.files
    )
    return (location, location) if location != target.quarantine else None
