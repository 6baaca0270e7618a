"""Write a task's rows, and set aside those that a check asks to drop or to put into quarantine.

Rows are written once where all are good. Otherwise what was written is read back, so that the task is not computed
twice: the good rows are written again, the bad ones go to the quarantine table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.connect.load import quarantine
from runnel.declare.model.flow import QUARANTINE, Check, Task
from runnel.declare.sql.literals import literal
from runnel.lake.diff.content_id import of_rows
from runnel.lake.iceberg.manifests import entries
from runnel.lake.iceberg.snapshot_descent import RUN
from runnel.lake.iceberg.snapshots import Edit, stage
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.leases import slots
from runnel.plan.facts import Head
from runnel.run.checks.check_verdict import told
from runnel.run.checks.row_checks import ASIDE, Finding, failing, row_checks, row_json
from runnel.run.content_tally import Tally
from runnel.run.task_context import timestamp_sql
from runnel.run.write.added_rows import added_rows
from runnel.run.write.target_layout import columns_of
from runnel.run.write.write_frame import Mode, Written, save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.run.task_context import Context

_CONTENT = ("raw", "reason")  # not which run found it, nor when


@dataclass(frozen=True)
class Put:
    """What became of a frame: what its table got, its quarantine table now, and what is to be told."""

    written: Written
    quarantine: Head | None
    set_aside: int = 0
    warnings: tuple[str, ...] = ()
    bad: tuple[Finding, ...] = ()  # checks whose rows were set aside


def put(
    context: "Context",
    task: Task,
    frame: "DataFrame",
    mode: Mode,
    base: str,
    before: Head | None,
    where: str | None = None,
    beside: "DataFrame | None" = None,
    content: Sequence[str] | None = None,
) -> Put:
    """Write a frame onto the version `base` of a task's table, without the rows that are to be set aside.

    Those go to the quarantine table, of which `before` is the version now. `where` chooses the files to
    replace, and the rows `beside` are written again. `content` are the columns that make up the content, if not all.
    """
    checks = row_checks(task)
    written = save(
        context, task.table, frame, base=base, mode=mode, checks=checks, content=content, where=where, beside=beside
    )
    bad = [finding for finding in written.findings if finding.failed and finding.check.on_fail in ASIDE]
    if not bad:
        return Put(written, _emptied(context, task, before) if mode == "overwrite" else before)
    is_bad = _any([finding.check for finding in bad])
    with added_rows(context, task.table, base, written.location) as rows:
        good = rows.where(f"NOT ({is_bad})")
        kept = save(context, task.table, good, base=base, mode=mode, checks=checks, content=content, where=where)
        aside = _quarantine(context, task, rows, bad, before, "overwrite" if mode == "overwrite" else "append")
    kept = replace(kept, tally=kept.tally.minus(written.kept), kept=written.kept)
    count = written.tally.rows - kept.tally.rows
    return Put(kept, aside, count, tuple(_told(task, finding) for finding in bad), tuple(bad))


def quarantined(context: "Context", task: Task) -> Head | None:
    """Return a task's quarantine table as it was when the run began."""
    found = context.slot.base.get(task.quarantine) if task.quarantine else None
    return Head(found.location, found.content) if found else None


def _quarantine(
    context: "Context", task: Task, rows: "DataFrame", bad: Sequence[Finding], before: Head | None, mode: Mode
) -> Head | None:
    """Write the bad rows into the quarantine table; those that are only dropped don't go there."""
    chosen = [finding.check for finding in bad if finding.check.on_fail == QUARANTINE]
    if task.quarantine is None or not chosen:
        return _emptied(context, task, before) if mode == "overwrite" else before
    base = before.location if before else quarantine.create(context.store, task.table)
    reasons = ", ".join(f"CASE WHEN {failing(one.check)} THEN {literal(one.check.text)} END" for one in bad)
    frame = rows.where(_any(chosen)).selectExpr(
        f"{row_json(columns_of(rows.schema))} AS raw",
        f"concat_ws('; ', {reasons}) AS reason",
        "string(null) AS file",
        f"{literal(context.run)} AS run",
        f"{timestamp_sql(context.now)} AS at",
    )
    written = save(context, task.quarantine, frame, base=base, mode=mode, content=_CONTENT)
    if mode == "append" and before is not None:
        return Head(written.location, written.location)
    return _unless_same(context, task, before, Head(written.location, _content(written.tally)))


def _emptied(context: "Context", task: Task, before: Head | None) -> Head | None:
    """Return the quarantine table without rows: everything was computed anew and is good."""
    if before is None or task.quarantine is None:
        return before
    found = list(entries(context.store, load(context.store, before.location)))
    if not found:
        return before
    location = stage(context.store, before.location, Edit(removed=found, summary={RUN: context.run}))
    slots.place(context.store.db, context.slot, {task.quarantine: location})
    return Head(location, _content(Tally()))


def _unless_same(context: "Context", task: Task, before: Head | None, after: Head) -> Head:
    """Return the version that was there where the same rows are in quarantine again."""
    if before is None or before.content != after.content or task.quarantine is None:
        return after
    slots.place(context.store.db, context.slot, {task.quarantine: before.location})
    return before


def _content(tally: Tally) -> str:
    return of_rows(QUARANTINE, *tally)


def _any(checks: Sequence[Check]) -> str:
    return " OR ".join(failing(check) for check in checks)


def _told(task: Task, finding: Finding) -> str:
    where = f"put into `{task.quarantine}`" if finding.check.on_fail == QUARANTINE else "dropped"
    return f"{where}: {told(finding)}"
