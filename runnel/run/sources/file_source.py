"""Ingest new and changed files of a source into its table, or reuse a version that already has these contents."""

from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Changes, Files, Manual
from runnel.model.table_version import TableVersion
from runnel.phase_timer import measure_phase
from runnel.plan.reasons import describe_unfinished_files
from runnel.run.results.run_result import Event, StepResult
from runnel.run.sources.source_ingest import build_row_warnings, make_step_ingest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runnel.connect.ingest.detect.file_changes import FileChanges
    from runnel.lake.flow_state.ingest_position import ProcessedFile
    from runnel.plan.steps import PlanStep
    from runnel.run.run_context import RunContext


_MOST_LISTED = 5
_MOST_LOGGED = 100


def ingest_source(run_context: "RunContext", step: "PlanStep") -> StepResult:
    """Ingest what is new of a source, whatever its kind, and stage the next version of its table."""
    source = run_context.flow.sources[step.table]
    if isinstance(source.origin, Changes):
        from runnel.run.sources.change_log import apply_changes

        return apply_changes(run_context, source, step)
    if not isinstance(source.origin, Files | Manual):
        from runnel.run.sources.feed_source import ingest_feed_source

        return ingest_feed_source(run_context, step)
    file_changes = run_context.facts.file_changes(step.table)
    if file_changes is not None and file_changes.is_empty and file_changes.renamed:
        # No row changes, but a later change of the file must find its rows.
        head = run_context.heads.get(step.table)
        return StepResult(
            step.table, "ingest", "succeeded", step.reason, rows=0, head=head, processed_files=file_changes.moved_files
        )
    if file_changes is None or not isinstance(source.origin, Files):
        return StepResult(step.table, "skip", "skipped", step.reason)
    creates_empty = source.origin.may_be_empty and step.table not in run_context.heads
    if file_changes.is_empty and not creates_empty:
        return StepResult(step.table, "skip", "skipped", step.reason)
    if step.action == "reuse" and step.head is not None:
        processed_files = _find_position(run_context, step, file_changes)
        if processed_files is not None:
            return StepResult(
                step.table, "reuse", "succeeded", step.reason, head=step.head, processed_files=processed_files
            )
    run_context.report_event(Event("start", step.reason, step.table, "ingest"))
    run_context.log.write(f"files of {step.table}: {_list_files(file_changes)}")
    return _read_files(run_context, step, file_changes)


@measure_phase("read")
def _read_files(run_context: "RunContext", step: "PlanStep", file_changes: "FileChanges") -> StepResult:
    head, ingest = run_context.heads.get(step.table), make_step_ingest(run_context, step.table)
    ingested = ingest.stage(file_changes, run_context.heads, lambda: run_context.facts.position(step.table))
    if head is not None and ingested.location == head.location:
        return StepResult(step.table, "skip", "skipped", describe_unfinished_files(ingested.unfinished))
    return StepResult(
        step.table,
        "ingest",
        "succeeded",
        step.reason,
        rows=ingested.rows,
        head=TableVersion(ingested.location, ingested.content),
        quarantine=TableVersion(*ingested.quarantine) if ingested.quarantine else None,
        set_aside=ingested.dropped + len(ingested.unread_reasons),
        processed_files=ingested.processed_files,
        detail={"run": run_context.spec.run, "files": ingested.files},
        warnings=(
            *build_row_warnings(ingested),
            *_describe_unread_files(ingested.unread_reasons, bool(ingested.quarantine)),
            *ingested.warnings,
            *filter(None, [describe_unfinished_files(ingested.unfinished)]),
        ),
        place=ingested.place if step.place is not None else None,
    )


def _list_files(file_changes: "FileChanges") -> str:
    """Return the files that a run reads by name, for its log: if a check fails later, one of them brought the rows."""
    paths = [source_file.path for source_file in file_changes.files_to_read]
    more = f" and {len(paths) - _MOST_LOGGED:,} more" if len(paths) > _MOST_LOGGED else ""
    return (", ".join(paths[:_MOST_LOGGED]) or "none") + more


def _describe_unread_files(unread: tuple[str, ...], has_quarantine: bool) -> tuple[str, ...]:
    """Return warnings about files that can't be read, the first few by name."""
    more_count = len(unread) - _MOST_LISTED
    verb = "set aside" if has_quarantine else "skipped"
    more_line = (f"and {more_count:,} more files were {verb}",) if more_count > 0 else ()
    return (*(f"a file was {verb}: {why}" for why in unread[:_MOST_LISTED]), *more_line)


def _find_position(
    run_context: "RunContext", step: "PlanStep", file_changes: "FileChanges"
) -> "tuple[ProcessedFile, ...] | None":
    """Return the ingest position of an existing version: which data files its rows of each file were written to.

    None if a file or rows can't be matched; the caller then reads the files. Rows count for a source file only if
    they were written for that path: rows that were written for another file with equal contents belong to the other
    file, even if that one is removed later.
    """
    from runnel.lake.flow_state.ingest_positions import find_stored_data_files

    assert step.head is not None
    unclaimed_rows = _list_owned_rows(run_context, step.head)
    if unclaimed_rows is None:
        return None
    position = run_context.facts.position(step.table)
    moved_files = {processed_file.path: processed_file for processed_file in file_changes.list_processed_files({})}
    unread_paths = {source_file.path for source_file in file_changes.files_to_read}
    changed: list[ProcessedFile] = []
    for path, processed_file in (position | moved_files).items():
        if processed_file.is_removed:
            changed += [processed_file] if path in moved_files else []
            continue
        candidates = [] if path in unread_paths else [processed_file.files]
        files = _claim_rows(processed_file, candidates, unclaimed_rows)
        if files is None:
            candidates = find_stored_data_files(run_context.store.db, step.table, processed_file.identity)
            files = _claim_rows(processed_file, candidates, unclaimed_rows)
        if files is None:
            return None
        changed += (
            [replace(processed_file, files=files)] if path in moved_files or files != processed_file.files else []
        )
    return tuple(changed) if not unclaimed_rows else None


def _list_owned_rows(run_context: "RunContext", head: TableVersion) -> set[tuple[str, str]] | None:
    """Return the owners of the rows of a version, each with the ids of data files that they were first written to.

    None if rows have no owner, or if another engine has deleted some.
    """
    from runnel.lake.iceberg.data_file_owners import read_origin
    from runnel.lake.iceberg.manifests import read_entries
    from runnel.lake.iceberg.table_metadata import load_metadata
    from runnel.lake.owners.row_runs import list_runs, load_footers

    store = run_context.store
    entries = list(read_entries(store, load_metadata(store, head.location)))
    load_footers(store, entries)
    runs_by_file = [list_runs(store, entry) if entry.is_data else () for entry in entries]
    if not all(runs_by_file):
        return None
    return {(run.owner, read_origin(run.piece)) for runs in runs_by_file for run in runs}


def _claim_rows(
    processed_file: "ProcessedFile", candidates: "Iterable[tuple[str, ...]]", unclaimed_rows: set[tuple[str, str]]
) -> tuple[str, ...] | None:
    """Return the first data files among `candidates` whose rows of a source file are unclaimed, and claim those."""
    from runnel.lake.iceberg.data_file_owners import read_file_id

    for files in candidates:
        claimed_rows = {
            (owner, read_file_id(file))
            for file in files
            for owner in processed_file.all_owners
            if (owner, read_file_id(file)) in unclaimed_rows
        }
        if {file_id for _, file_id in claimed_rows} == {read_file_id(file) for file in files}:
            unclaimed_rows -= claimed_rows
            return files
    return None
