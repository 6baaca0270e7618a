"""Decide the step of a source: ingest new data, reuse an existing version, or skip it.

Pure: the facts say what the source has.
"""

from runnel.declare.model.endpoints import Files, Manual
from runnel.declare.model.flow import Source
from runnel.model.table_version import TableVersion
from runnel.plan import reasons
from runnel.plan.facts import Facts, SourceChanges
from runnel.plan.missing_inputs import describe_no_files
from runnel.plan.steps import PlanStep


def decide_source(source: Source, facts: Facts) -> tuple[PlanStep, SourceChanges]:
    """Return the step of a source, with the changes to ingest.

    A source that never had anything to read is a mistake; a manual one may be empty.
    """
    table, head = source.table, facts.head(source.table)
    if isinstance(source.origin, Manual):
        reason = reasons.BY_HAND if head is not None else f"{reasons.BY_HAND}; nothing in it yet"
        return PlanStep(table, "skip", reason, head=head), SourceChanges()
    changes = facts.source_changes(table)
    if not changes.is_empty:
        return _ingest_or_reuse(source, changes, head), changes
    if changes.renamed and head is not None:
        reason = _add_notes(reasons.describe_renamed_files(changes.renamed), changes)
        return PlanStep(table, "ingest", reason, head=head), changes
    may_be_empty = isinstance(source.origin, Files) and source.origin.may_be_empty
    if (changes.problem or changes.unfinished_files) and head is None:
        if not may_be_empty:
            raise describe_no_files(source, changes)
        predicted = TableVersion("", changes.content) if changes.content is not None else None
        reason = _add_notes(reasons.EMPTY_TABLE, changes)
        return PlanStep(table, "ingest", reason, head=predicted), changes
    nothing_new_reason = reasons.NO_NEW_FILES if isinstance(source.origin, Files) else reasons.NOTHING_NEW
    if changes.problem and not may_be_empty:
        return PlanStep(table, "skip", f"{changes.problem}; its rows stay", head=head), changes
    return PlanStep(table, "skip", _add_notes(nothing_new_reason, changes), head=head), changes


def _ingest_or_reuse(source: Source, changes: SourceChanges, head: TableVersion | None) -> PlanStep:
    reason = _add_notes(reasons.describe_source_changes(changes), changes)
    if changes.existing_version is None:
        predicted = TableVersion("", changes.content) if changes.content is not None else None
        return PlanStep(source.table, "ingest", reason, head=predicted, bytes=changes.bytes)
    is_same_content = head is not None and head.content == changes.existing_version.content
    reuse_reason = "with the rows that it already has" if is_same_content else "already ingested"
    return PlanStep(source.table, "reuse", f"{reason}, {reuse_reason}", head=changes.existing_version)


def _add_notes(reason: str, changes: SourceChanges) -> str:
    """Return a reason with what else a user should know: files that are being written, and files that are gone."""
    unfinished = reasons.describe_unfinished_files(changes.unfinished_files)
    return "; ".join(filter(None, [reason, unfinished, reasons.describe_missing_files(changes.missing_files)]))
