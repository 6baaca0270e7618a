"""Write a task's rows, except those that a check drops or quarantines.

If all rows are good, they are written once. Otherwise the rows are read back, so that the task is not computed twice:
the good ones are written again, the bad ones go to the quarantine table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.connect.load import quarantine
from runnel.declare.model.flow import QUARANTINE_LAYER, Check, Task
from runnel.declare.sql.literals import format_literal
from runnel.lake.diff.content_id import content_of_rows
from runnel.lake.iceberg.manifests import read_entries
from runnel.lake.iceberg.snapshot_descent import RUN_PROPERTY
from runnel.lake.iceberg.snapshots import VersionEdit, stage_version
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.leases import slots
from runnel.model.table_version import TableVersion
from runnel.run.checks.check_verdict import describe_finding
from runnel.run.checks.row_checks import REJECTING_ACTIONS, CheckFinding, failing_sql, list_row_checks, row_json_sql
from runnel.run.content_tally import ContentTally
from runnel.run.task_context import timestamp_sql
from runnel.run.write.added_rows import open_added_rows
from runnel.run.write.target_layout import list_columns
from runnel.run.write.write_frame import FrameTarget, FrameWrite, Mode, save_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.run.task_context import TaskContext

_CONTENT_COLUMNS = ("raw", "reason")  # not the run that quarantined the row, nor the time


@dataclass(frozen=True)
class WriteResult:
    """The result of writing a frame: what was written, the quarantine table afterwards, and warnings."""

    frame_write: FrameWrite
    quarantine: TableVersion | None
    quarantined_rows: int = 0
    warnings: tuple[str, ...] = ()
    failed_findings: tuple[CheckFinding, ...] = ()  # of checks whose rows were dropped or quarantined


def write_checked_frame(
    context: "TaskContext",
    task: Task,
    frame: "DataFrame",
    target: FrameTarget,
    quarantine_before: TableVersion | None,
) -> WriteResult:
    """Write a frame into a task's table, without the rows that checks drop or quarantine.

    `quarantine_before` is the current version of the quarantine table.
    """
    checks, is_overwrite = list_row_checks(task), target.mode == "overwrite"
    frame_write = save_frame(context, task.table, frame, target, checks)
    failed_findings = [
        finding for finding in frame_write.findings if finding.failed and finding.check.on_fail in REJECTING_ACTIONS
    ]
    if not failed_findings:
        return WriteResult(
            frame_write,
            _empty_quarantine(context, task, quarantine_before) if is_overwrite else quarantine_before,
        )
    is_bad = _any_failing_sql([finding.check for finding in failed_findings])
    with open_added_rows(context, task.table, target.base, frame_write.location) as rows:
        good_rows = rows.where(f"NOT ({is_bad})")  # with the retained rows, which were written, too
        good_write = save_frame(context, task.table, good_rows, replace(target, retained_rows=None), checks)
        quarantine_head = _write_quarantine(
            context, task, rows, failed_findings, quarantine_before, mode="overwrite" if is_overwrite else "append"
        )
    good_write = replace(
        good_write, tally=good_write.tally.minus(frame_write.retained_tally), retained_tally=frame_write.retained_tally
    )
    rejected_count = frame_write.tally.rows - good_write.tally.rows
    return WriteResult(
        good_write,
        quarantine_head,
        rejected_count,
        tuple(_describe_rejection(task, finding) for finding in failed_findings),
        tuple(failed_findings),
    )


def read_quarantine_head(context: "TaskContext", task: Task) -> TableVersion | None:
    """Return the version of a task's quarantine table at the start of the run."""
    return context.slot.base.get(task.quarantine_table) if task.quarantine_table else None


def _write_quarantine(
    context: "TaskContext",
    task: Task,
    rows: "DataFrame",
    failed_findings: Sequence[CheckFinding],
    quarantine_before: TableVersion | None,
    *,
    mode: Mode,
) -> TableVersion | None:
    """Write the bad rows into the quarantine table, without those that are only dropped."""
    quarantine_checks = [finding.check for finding in failed_findings if finding.check.on_fail == QUARANTINE_LAYER]
    if task.quarantine_table is None or not quarantine_checks:
        return _empty_quarantine(context, task, quarantine_before) if mode == "overwrite" else quarantine_before
    base = quarantine_before.location if quarantine_before else quarantine.create(context.store, task.table)
    reasons = ", ".join(
        f"CASE WHEN {failing_sql(failed_finding.check)} THEN {format_literal(failed_finding.check.text)} END"
        for failed_finding in failed_findings
    )
    frame = rows.where(_any_failing_sql(quarantine_checks)).selectExpr(
        f"{row_json_sql(list_columns(rows.schema))} AS raw",
        f"concat_ws('; ', {reasons}) AS reason",
        "string(null) AS file",
        f"{format_literal(context.run)} AS run",
        f"{timestamp_sql(context.now)} AS at",
    )
    target = FrameTarget(base, mode, content_names=_CONTENT_COLUMNS)
    written = save_frame(context, task.quarantine_table, frame, target)
    if mode == "append" and quarantine_before is not None:
        return TableVersion(written.location, written.location)
    return _reuse_unchanged_quarantine(
        context, task, quarantine_before, TableVersion(written.location, _quarantine_content(written.tally))
    )


def _empty_quarantine(
    context: "TaskContext", task: Task, quarantine_before: TableVersion | None
) -> TableVersion | None:
    """Return an empty version of the quarantine table: everything was computed again, and all rows are good."""
    if quarantine_before is None or task.quarantine_table is None:
        return quarantine_before
    manifest_entries = list(read_entries(context.store, load_metadata(context.store, quarantine_before.location)))
    if not manifest_entries:
        return quarantine_before
    location = stage_version(
        context.store,
        quarantine_before.location,
        VersionEdit(removed=manifest_entries, summary={RUN_PROPERTY: context.run}),
    )
    slots.place_tables(context.store.db, context.slot, {task.quarantine_table: location})
    return TableVersion(location, _quarantine_content(ContentTally()))


def _reuse_unchanged_quarantine(
    context: "TaskContext", task: Task, before: TableVersion | None, after: TableVersion
) -> TableVersion:
    """Return the previous version if the same rows are quarantined again."""
    if before is None or before.content != after.content or task.quarantine_table is None:
        return after
    slots.place_tables(context.store.db, context.slot, {task.quarantine_table: before.location})
    return before


def _quarantine_content(tally: ContentTally) -> str:
    return content_of_rows(QUARANTINE_LAYER, *tally)


def _any_failing_sql(checks: Sequence[Check]) -> str:
    return " OR ".join(failing_sql(check) for check in checks)


def _describe_rejection(task: Task, finding: CheckFinding) -> str:
    destination = f"put into `{task.quarantine_table}`" if finding.check.on_fail == QUARANTINE_LAYER else "dropped"
    return f"{destination}: {describe_finding(finding)}"
