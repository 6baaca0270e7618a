"""Ingest a feed: fetch its rows into files, read them like any files, and stage one version with the new state.

Both are done in this process, or in work units on the executors of Spark.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel import temp_dirs
from runnel.connect.feed import failpoints
from runnel.connect.feed.protocol import (
    READ_BY_ONE_PROCESS,
    ComparingFeed,
    Feed,
    FeedChanges,
    FeedState,
    FetchedRows,
    FetchPlace,
    FrameFeed,
    QuarantiningFeed,
    UnitFeed,
)
from runnel.connect.feed.row_displacer import DisplacedFiles
from runnel.connect.feed.state import compute_content, record_feed_state
from runnel.connect.feed.target_comparison import TargetComparison
from runnel.connect.feed.upsert import KeyPaths, displace_places, displace_rows
from runnel.connect.files.file_patterns import LocalFile, make_local_file
from runnel.connect.ingest.bad_rows import QuarantineOutput, QuarantineTarget, load_quarantine_metadata
from runnel.connect.ingest.batch_reader import IngestBatch, prepare_target, read_batch
from runnel.connect.ingest.ingest import IngestResult, IngestTarget
from runnel.connect.ingest.shared_scratch import SharedScratch, open_scratch
from runnel.connect.ingest.source_errors import describe_source_errors
from runnel.connect.load import quarantine
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.declare.model.endpoints import Files
from runnel.lake.iceberg import table_metadata
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import drop_history
from runnel.lake.work_runner import ProcessRunner, WorkRunner
from runnel.model.work_place import EXECUTORS

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def ingest_feed(
    target: IngestTarget, feed: Feed, state: FeedState | None, changes: FeedChanges, content: str | None
) -> IngestResult:
    """Stage the next version of a source's table; `content` is the content id of the current version.

    Raises if rows are bad and the source's `on_bad` is "stop"; then nothing must be published.
    """
    runner = _choose_runner(target, feed, changes)
    quarantine_metadata = load_quarantine_metadata(target)
    if quarantine_metadata is not None and isinstance(feed, QuarantiningFeed):
        feed.quarantine_to(
            QuarantineOutput(target.store.files, target.run, QuarantineTarget(drop_history(quarantine_metadata)))
        )
    with ExitStack() as stack:
        target_table = TargetComparison(target.store, target.base)
        if runner.place.name == EXECUTORS and isinstance(feed, UnitFeed):
            scratch = stack.enter_context(open_scratch(target.store.files, target.run, target.source.table))
            fetched = feed.fetch_in_units(state, changes, FetchPlace(runner, scratch, target.report, target.base))
        elif isinstance(feed, FrameFeed):
            fetched, runner = _fetch_frame(target, feed, state, changes, stack)
        else:
            if isinstance(feed, ComparingFeed):
                feed.compare(target_table)
            folder = Path(stack.enter_context(temp_dirs.create_scoped("feed")))
            fetched = feed.fetch(state, changes, folder, target.report)
        failpoints.reach(failpoints.FETCHED)
        with describe_source_errors(target.source):
            batch = _read_fetched_files(target, fetched, runner, quarantine_metadata)
        failpoints.reach(failpoints.READ)
        location = _stage_version(target, batch, fetched, target_table)
    failpoints.reach(failpoints.STAGED)
    return IngestResult(
        location=location,
        content=compute_content(content, "replace" if fetched.is_complete else fetched.mode, fetched.identity),
        rows=batch.written.rows,
        files=len(fetched.parts) + len(fetched.shared_parts),
        processed_files=(record_feed_state(fetched.state, fetched.identity),),
        dropped=batch.dropped + len(fetched.bad_rows) + fetched.dropped,
        quarantine=_stage_quarantine(target, batch, fetched, quarantine_metadata),
        new_columns=batch.new_columns,
        warnings=fetched.warnings,
        oldest_at=fetched.oldest_at,
        place=runner.place,
    )


def _fetch_frame(
    target: IngestTarget, feed: FrameFeed, state: FeedState | None, changes: FeedChanges, stack: ExitStack
) -> tuple[FetchedRows, WorkRunner]:
    """Return the rows, and where they are read: only what Spark wrote may be read on executors."""

    def open_shared_scratch() -> SharedScratch:
        return stack.enter_context(open_scratch(target.store.files, target.run, target.source.table))

    folder = Path(stack.enter_context(temp_dirs.create_scoped("feed")))
    fetched = feed.fetch_frame(state, changes, folder, open_shared_scratch, target.report)
    if not fetched.shared_parts:
        return fetched, ProcessRunner(READ_BY_ONE_PROCESS)
    runner = target.choose_runner(sum(part.bytes for part in fetched.shared_parts))
    if runner.place.name == EXECUTORS:
        return fetched, runner
    scratch = SharedScratch(target.store.files, target.store.warehouse)
    parts = stack.enter_context(scratch.open_files(fetched.shared_parts))
    return replace(fetched, parts=parts, shared_parts=()), runner


def _choose_runner(target: IngestTarget, feed: Feed, changes: FeedChanges) -> WorkRunner:
    """Return where the feed is read; it decides itself whether units can do it."""
    if changes.estimate_bytes is None or not isinstance(feed, UnitFeed):
        return ProcessRunner(READ_BY_ONE_PROCESS)
    return target.choose_runner(changes.estimate_bytes)


def _is_reread(target: IngestTarget, fetched: FetchedRows) -> bool:
    """Tell whether bad rows may be in the quarantine already: then they are compared with those that are there."""
    return target.quarantine is not None and fetched.mode != "append"


def _read_fetched_files(
    target: IngestTarget, fetched: FetchedRows, runner: WorkRunner, quarantine_metadata: "TableMetadata | None"
) -> IngestBatch:
    """Read all fetched files, by the source's `on_bad` policy."""
    is_written = quarantine_metadata is not None and not _is_reread(target, fetched)
    quarantine_target = QuarantineTarget(quarantine_metadata) if quarantine_metadata and is_written else None
    local_parts = [part for part in fetched.parts if part.path.stat().st_size]
    shared_parts = [part for part in fetched.shared_parts if part.bytes]
    from_scratch, source = target.base is None, target.source
    formats = [*(part.format for part in local_parts), *(part.format for part in shared_parts)]
    file_source = replace(
        source, origin=Files(str(source.table), formats[0] if formats else "jsonl", source.origin.schema)
    )
    if shared_parts:
        from runnel.connect.ingest.units.unit_batch import read_batch_in_units

        shared_files = [LocalFile(part.name, part.location, part.bytes, 0.0) for part in shared_parts]
        return read_batch_in_units(
            replace(target, source=file_source),
            shared_files,
            runner,
            {},
            from_scratch=from_scratch,
            combine_files=True,
            quarantine=quarantine_target,
        )
    if not local_parts:
        return IngestBatch(prepare_target(target.store, file_source, (), target.base, from_scratch=from_scratch))
    files = [make_local_file(part.name, part.path) for part in local_parts]
    return read_batch(
        replace(target, source=file_source),
        files,
        from_scratch=from_scratch,
        combine_files=True,
        quarantine=quarantine_target,
    )


def _stage_version(
    ingest_target: IngestTarget, batch: IngestBatch, fetched: FetchedRows, target_table: TargetComparison
) -> str:
    store, base = ingest_target.store, ingest_target.base
    added = list(batch.written.files)
    target = batch.target
    if base is None or target.location != base:
        return stage_version(store, target.location, VersionEdit(added=added)) if added else target.location
    if fetched.mode == "replace":
        removed = list(read_entries(store, table_metadata.load_metadata(store, base)))
        return stage_version(store, base, VersionEdit(added, removed, updates=target.updates))
    displaced_files = DisplacedFiles()
    if fetched.mode == "upsert":
        has_known_keys = fetched.removed_keys is None and not fetched.present_keys
        places = (
            target_table.find_displaced_places(sum(file.record_count for file in added)) if has_known_keys else None
        )
        if places is not None and added:
            displaced_files = displace_places(store, base, target.metadata, places)
        else:
            displaced_files = displace_rows(
                store,
                base,
                target.metadata,
                added,
                fetched.key,
                key_paths=KeyPaths(fetched.removed_keys, fetched.present_keys),
                choose_runner=ingest_target.choose_runner,
            )
    if not (added or displaced_files.removed or displaced_files.added or target.updates):
        return base
    return stage_version(
        store, base, VersionEdit([*added, *displaced_files.added], displaced_files.removed, updates=target.updates)
    )


def _stage_quarantine(
    target: IngestTarget, batch: IngestBatch, fetched: FetchedRows, metadata: "TableMetadata | None"
) -> tuple[str, str] | None:
    """Stage the quarantine table with the bad rows.

    Rows that were read again are not added twice; rows that a complete read no longer has are removed.
    """
    store = target.store
    feed_rows = (replace(row, run=row.run or target.run) for row in fetched.bad_rows)
    bad_rows = (*batch.set_aside.rows, *feed_rows) if metadata is not None else ()
    if target.quarantine is not None and _is_reread(target, fetched):
        return _replace_quarantined_rows(target, fetched, target.quarantine, bad_rows)
    files = (*batch.set_aside.files, *fetched.quarantine_files)
    if metadata is None or not (files or bad_rows):
        return None
    base = target.quarantine or table_metadata.write_metadata(store, metadata, None)
    location = quarantine.replace_owned_rows(store, base, bad_rows, (), files=files)
    return location, location


def _replace_quarantined_rows(
    target: IngestTarget, fetched: FetchedRows, base: str, bad_rows: Sequence[QuarantinedRow]
) -> tuple[str, str] | None:
    store = target.store
    existing_rows = quarantine.read_version_rows(store, table_metadata.load_metadata(store, base))
    existing_identities, bad_identities = (
        {_identify_row(row) for row in existing_rows},
        {_identify_row(row) for row in bad_rows},
    )
    added_rows = [row for row in bad_rows if _identify_row(row) not in existing_identities]
    is_complete = fetched.mode == "replace" or fetched.is_complete
    removed_rows = [row for row in existing_rows if is_complete and _identify_row(row) not in bad_identities]
    if not added_rows and not removed_rows:
        return None
    location = (
        quarantine.replace_rows(store, base, removed_rows, added_rows)
        if removed_rows
        else quarantine.append(store, base, added_rows)
    )
    return location, location


def _identify_row(row: QuarantinedRow) -> tuple[str | None, ...]:
    """Return what identifies a quarantined row, regardless of when it was quarantined."""
    return row.raw, row.reason, row.file
