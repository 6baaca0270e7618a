"""Refresh a task's table from its frame: prepare, write, quarantine, check; in full, or only the rows that changed.

Works in the run's slot; publishes nothing. If a task fails, its tables are restored to their previous versions.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Check, Task
from runnel.declare.sql.literals import format_literal, quote_column
from runnel.errors import RunnelError, raise_all
from runnel.lake.diff.changed_slices import count_slices, read_bounds
from runnel.lake.diff.file_delta import compute_file_delta
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.leases import slots
from runnel.model.table_version import TableVersion
from runnel.phase_timer import measure_phase
from runnel.run import content_tally
from runnel.run.checks.check_verdict import judge_findings
from runnel.run.checks.row_checks import find_invalid_checks, list_row_checks
from runnel.run.checks.table_checks import find_unreadable_checks, run_table_checks
from runnel.run.content_tally import EMPTY_TALLY, ContentTally
from runnel.run.slices.keys import SliceKeys
from runnel.run.slices.partition_layout import read_partition
from runnel.run.slices.replace import (
    find_bucket_condition,
    find_file_condition,
    is_small_table,
    list_slice_columns,
    measure_slices,
    open_retained_rows,
    remove_quarantined_slices,
    remove_slices,
)
from runnel.run.write.column_extension import find_extended_content
from runnel.run.write.multiset_removal import CopyRemoval, IncomparableRows, remove_row_copies
from runnel.run.write.quarantine_writer import WriteResult, read_quarantine_head, write_checked_frame
from runnel.run.write.row_removal import count_rows, remove_by_key
from runnel.run.write.target_layout import list_columns, prepare_table
from runnel.run.write.write_frame import FrameTarget, Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.run.task_context import TaskContext


@dataclass(frozen=True)
class RefreshResult:
    """The result of refreshing a task's table. `rows` is its row count, `written_rows` how many of them are new.

    `tally` is None if it is not known. `quarantine` is the version of the quarantine table afterwards.
    """

    head: TableVersion
    rows: int | None = None
    tally: tuple[int, int, int] | None = None
    quarantine: TableVersion | None = None
    warnings: tuple[str, ...] = ()
    written_rows: int = 0
    quarantined_rows: int = 0
    extended_content: str | None = None  # the content before, if only columns were added
    slice_count: int | None = None  # if it is computed by slices


@dataclass(frozen=True)
class BaseVersion:
    """The version that some rows are replaced in, with its tally and its number of slices, if these are known."""

    head: TableVersion
    tally: tuple[int, int, int] | None = None
    slice_count: int | None = None


class SchemaMismatch(RunnelError):
    """Raised if the table can't take the changed rows, for lack of columns say; it has to be computed in full."""

    def __init__(self, task: Task, why: str | None = None) -> None:
        what = why or f"`{task.table}` does not have the columns that its task now returns"
        super().__init__("RUN_BASE_UNFIT", what, at=str(task.place), fix="run it with --full-refresh")


@measure_phase("write")
def replace_all_rows(
    context: "TaskContext",
    task: Task,
    frame: "DataFrame",
    base: TableVersion | None,
    partition: Sequence[str] | None = None,
) -> RefreshResult:
    """Replace all rows. If the content and the layout are those of `base`, the result is `base` itself.

    `partition` overrides the partitioning that the task declares.
    """
    with _restore_on_failure(context, task, base):
        _refuse_unreadable_checks(context, task, frame)
        prepared_base = prepare_table(context.store, task, frame.schema, base, partition=partition)
        quarantine_head = read_quarantine_head(context, task)
        is_new = base is None and quarantine_head is None
        mode: Mode = "append" if is_new else "overwrite"  # a table that was just created is empty
        write_result = write_checked_frame(context, task, frame, FrameTarget(prepared_base, mode), quarantine_head)
        warnings = _judge_checks(context, task, write_result)
    content = content_tally.build_content_id(list_columns(frame.schema), write_result.frame_write.tally)
    head = TableVersion(write_result.frame_write.location, content)
    if base is not None and base.content == content and prepared_base == base.location:
        head = base
        slots.place_tables(context.store.db, context.slot, {task.table: base.location})
    rows, extended_content = (
        write_result.frame_write.tally.rows,
        find_extended_content(context, task, frame.schema, base),
    )
    slice_count = count_slices(context.store, head.location, task.options.by) if task.options.by else None
    return RefreshResult(
        head,
        rows,
        write_result.frame_write.tally,
        write_result.quarantine,
        warnings,
        rows,
        write_result.quarantined_rows,
        extended_content,
        slice_count,
    )


@measure_phase("write")
def replace_slices(
    context: "TaskContext", task: Task, frame: "DataFrame", keys: SliceKeys, base: BaseVersion
) -> RefreshResult:
    """Replace the rows of some slices by those of a frame.

    Raises SchemaMismatch if the table lacks columns of the frame.
    """
    head, tally = base.head, base.tally
    with _restore_on_failure(context, task, head):
        _refuse_unreadable_checks(context, task, frame)
        start = prepare_table(
            context.store, task, frame.schema, head, partition=read_partition(context.store, task, head)
        )
        _refuse_other_columns(context, task, head, start)
        quarantine_head = remove_quarantined_slices(context, task, keys, read_quarantine_head(context, task), frame)
        replacement = _SliceRewrite(context, task, frame, keys, start, quarantine_head, base.slice_count).replace_rows()
        warnings = _judge_checks(context, task, replacement.write_result, _select_rows_of_slices(context, task, keys))
    write_result, new_tally = replacement.write_result, replacement.write_result.frame_write.tally
    total_tally = replacement.total_tally or (
        ContentTally(*tally).minus(replacement.removed_tally).plus(new_tally) if tally is not None else None
    )
    if total_tally is not None and tally is not None and total_tally == ContentTally(*tally):  # the same rows again
        slots.place_tables(context.store.db, context.slot, {task.table: head.location})
        unchanged = _make_result(head, total_tally.rows, total_tally, write_result, warnings)
        return replace(unchanged, slice_count=base.slice_count)
    row_count = count_rows(context.store, write_result.frame_write.location)
    content = (
        content_tally.build_content_id(list_columns(frame.schema), total_tally)
        if total_tally
        else write_result.frame_write.location
    )
    new_head = TableVersion(write_result.frame_write.location, content)
    refresh = _make_result(new_head, row_count, total_tally, write_result, warnings)
    return replace(refresh, slice_count=replacement.slice_count)


@dataclass(frozen=True)
class _SliceReplacement:
    """The result of replacing slices: the write, the new or the removed tally, and the number of slices."""

    write_result: WriteResult
    total_tally: ContentTally | None = None
    removed_tally: ContentTally = EMPTY_TALLY
    slice_count: int | None = None


@dataclass(frozen=True)
class _SliceRewrite:
    """The replacement of slices in the version `start` of a task's table, by the rows of a frame."""

    context: "TaskContext"
    task: Task
    frame: "DataFrame"
    keys: SliceKeys
    start: str
    quarantine_head: TableVersion | None
    base_slice_count: int | None

    def replace_rows(self) -> _SliceReplacement:
        """Replace slices in the cheapest way: by whole files, by buckets, by rewriting a small table, or row by row."""
        context, task, keys, start = self.context, self.task, self.keys, self.start
        file_condition = find_file_condition(context, task, keys, start)
        bucket_condition = find_bucket_condition(context, task, keys, start) if file_condition is None else None
        if bucket_condition is not None:
            return self._replace_buckets(bucket_condition)
        if file_condition is None and is_small_table(context, start):
            return self._rewrite_table()
        return self._replace_files_or_rows(file_condition)

    def _rewrite_table(self) -> _SliceReplacement:
        """Write all rows again, with the new rows of the slices."""
        with open_retained_rows(self.context, self.task, self.keys, self.start) as retained:
            write_result = self._write(FrameTarget(self.start, "rewrite", retained_rows=retained.rows))
        frame_write = write_result.frame_write
        slice_count = count_slices(self.context.store, frame_write.location, self.task.options.by)
        return _SliceReplacement(
            write_result, frame_write.retained_tally.plus(frame_write.tally), slice_count=slice_count
        )

    def _replace_files_or_rows(self, file_condition: str | None) -> _SliceReplacement:
        """Replace the files that the condition selects; without one, remove the rows of the slices and append."""
        context, task, keys, start = self.context, self.task, self.keys, self.start
        removed_tally, slices_before = measure_slices(context, task, keys, start)
        remaining_base = (
            start if file_condition or not removed_tally.rows else remove_slices(context, task, keys, start, self.frame)
        )
        write_result = self._write(
            FrameTarget(remaining_base, "replace" if file_condition else "append", file_condition)
        )
        added = compute_file_delta(context.store, remaining_base, write_result.frame_write.location).added
        slices_after = count_slices(context.store, write_result.frame_write.location, task.options.by, added)
        slice_count = self._count_slices_after(slices_before, slices_after)
        return _SliceReplacement(write_result, removed_tally=removed_tally, slice_count=slice_count)

    def _replace_buckets(self, bucket_condition: str) -> _SliceReplacement:
        """Rewrite the buckets that contain the slices, with the new rows of these."""
        store, start, by = self.context.store, self.start, self.task.options.by
        with open_retained_rows(self.context, self.task, self.keys, start, bucket_condition) as retained:
            write_result = self._write(FrameTarget(start, "rewrite", bucket_condition, retained.rows))
            file_delta = compute_file_delta(store, start, write_result.frame_write.location)
            tally_before = retained.tally_before(sum(entry.file.record_count for entry in file_delta.removed))
        removed_tally = tally_before.minus(write_result.frame_write.retained_tally)
        slices_before = count_slices(store, start, by, file_delta.removed)
        slices_after = count_slices(store, write_result.frame_write.location, by, file_delta.added)
        slice_count = self._count_slices_after(slices_before, slices_after)
        return _SliceReplacement(write_result, removed_tally=removed_tally, slice_count=slice_count)

    def _write(self, target: FrameTarget) -> WriteResult:
        return write_checked_frame(self.context, self.task, self.frame, target, self.quarantine_head)

    def _count_slices_after(self, slices_before: int | None, slices_after: int | None) -> int | None:
        """Return the number of slices of the table, from those of the rows that were removed and added."""
        if self.base_slice_count is None or slices_before is None or slices_after is None:
            return None
        return self.base_slice_count - slices_before + slices_after


@measure_phase("write")
def apply_row_changes(
    context: "TaskContext",
    task: Task,
    added: "DataFrame",
    removed: "DataFrame | None",
    base: BaseVersion,
) -> RefreshResult:
    """Remove what the task makes of removed input rows, and append what it makes of added ones.

    Rows to remove are matched by the task's key, or without one by all of their values, as a multiset. Raises
    SchemaMismatch if the table lacks columns of the rows.
    """
    tally = base.tally
    with _restore_on_failure(context, task, base.head):
        _refuse_unreadable_checks(context, task, added)
        start = prepare_table(context.store, task, added.schema, base.head)
        _refuse_other_columns(context, task, base.head, start)
        remaining_base, quarantine_head = start, read_quarantine_head(context, task)
        removed_tally: ContentTally | None = None
        if removed is not None and task.options.key:
            remaining_base, quarantine_head = remove_by_key(context, task, removed, start, quarantine_head)
            _refuse_ambiguous_key(context, task, removed, (start, remaining_base))
        elif removed is not None:
            copy_removal = _remove_copies(context, task, removed, start)
            remaining_base, removed_tally = copy_removal.location, copy_removal.removed
            added = added.unionByName(copy_removal.rewritten)
        content_names = () if tally is None else None  # then the content id is not computed from rows
        target = FrameTarget(remaining_base, "append", content_names=content_names)
        write_result = write_checked_frame(context, task, added, target, quarantine_head)
        warnings = _judge_checks(
            context,
            task,
            write_result,
            _select_rows_near_added(context, task, remaining_base, write_result.frame_write.location),
        )
    row_count, new_tally = count_rows(context.store, write_result.frame_write.location), write_result.frame_write.tally
    if tally is None or (remaining_base != start and removed_tally is None):
        return _make_result(
            TableVersion(write_result.frame_write.location, write_result.frame_write.location),
            row_count,
            None,
            write_result,
            warnings,
        )
    total_tally = ContentTally(*tally).minus(removed_tally or EMPTY_TALLY).plus(new_tally)
    if total_tally == ContentTally(*tally):
        slots.place_tables(context.store.db, context.slot, {task.table: base.head.location})
        return _make_result(base.head, total_tally.rows, total_tally, write_result, warnings)
    head = TableVersion(
        write_result.frame_write.location, content_tally.build_content_id(list_columns(added.schema), total_tally)
    )
    return _make_result(head, row_count, total_tally, write_result, warnings)


def _refuse_other_columns(context: "TaskContext", task: Task, base: TableVersion, prepared: str) -> None:
    """Raise SchemaMismatch if the table had to get other columns for the rows."""
    if (
        load_metadata(context.store, prepared).schema().fields
        != load_metadata(context.store, base.location).schema().fields
    ):
        raise SchemaMismatch(task)


def _remove_copies(context: "TaskContext", task: Task, removed: "DataFrame", start: str) -> CopyRemoval:
    try:
        return remove_row_copies(context, task, removed, start)
    except IncomparableRows as error:
        raise SchemaMismatch(task, str(error)) from error


def _make_result(
    head: TableVersion,
    row_count: int,
    tally: ContentTally | None,
    write_result: WriteResult,
    warnings: tuple[str, ...],
) -> RefreshResult:
    return RefreshResult(
        head,
        row_count,
        tally,
        write_result.quarantine,
        warnings,
        write_result.frame_write.tally.rows,
        write_result.quarantined_rows,
    )


def _judge_checks(
    context: "TaskContext", task: Task, write_result: WriteResult, changed_rows_sql: str | None = None
) -> tuple[str, ...]:
    """Judge the checks of rows and of the table, and the uniqueness of the key of an incremental task.

    `changed_rows_sql` selects the rows among which a key may be duplicated; by default the whole table.
    """
    table = context.identifier(task.table)
    table_findings = run_table_checks(context, table, _list_table_checks(task))
    if (task.options.by or task.options.rowwise) and task.options.key:
        table_findings += run_table_checks(context, changed_rows_sql or table, (_make_key_check(task),))
    findings = (*write_result.frame_write.findings, *table_findings)
    rejected_findings = {
        id(finding.check): finding for finding in write_result.failed_findings
    }  # the rows that remain pass these
    context.findings[task.table] = tuple(rejected_findings.get(id(finding.check), finding) for finding in findings)
    return (*judge_findings(task, findings), *write_result.warnings)


def _select_rows_of_slices(context: "TaskContext", task: Task, keys: SliceKeys) -> str:
    """Return SQL for the rows that may share a key with computed slices: only theirs if the key includes `by`."""
    table, condition = context.identifier(task.table), keys.condition(list_slice_columns(task))
    names = {name.lower() for name in task.options.key}
    if condition is None or not names.issuperset(name.lower() for name in task.options.by):
        return table
    return f"(SELECT * FROM {table} WHERE {condition})"


def _select_rows_near_added(context: "TaskContext", task: Task, before: str, after: str) -> str:
    """Return SQL for the rows that may share a key with added rows, by the bounds of the added files."""
    table = context.identifier(task.table)
    if not task.options.key:
        return table
    name = task.options.key[0]
    key_bounds = read_bounds(context.store, after, name, compute_file_delta(context.store, before, after).added)
    return (
        f"(SELECT * FROM {table} WHERE {quote_column(name)} BETWEEN "
        f"{format_literal(key_bounds[0])} AND {format_literal(key_bounds[1])})"
        if key_bounds
        else table
    )


def _refuse_ambiguous_key(context: "TaskContext", task: Task, removed: "DataFrame", versions: tuple[str, str]) -> None:
    """Raise SchemaMismatch if more rows were removed than the removed input explains: the key is not unique."""
    before, after = (count_rows(context.store, version) for version in versions)
    if before - after and before - after > removed.count():
        raise SchemaMismatch(task, f"its key {', '.join(task.options.key)} is not unique")


def _make_key_check(task: Task) -> Check:
    return Check("unique", f"key {', '.join(task.options.key)}", columns=task.options.key, place=task.place)


def _refuse_unreadable_checks(context: "TaskContext", task: Task, frame: "DataFrame") -> None:
    """Raise CHECK_INVALID for all checks that can't be read, if checks of the whole table are among them.

    If only checks of rows are, saving the frame raises it, so that readable checks cost nothing here.
    """
    mistakes = find_unreadable_checks(context, frame, _list_table_checks(task))
    if mistakes:
        mistakes = find_invalid_checks(frame, list_row_checks(task), list_columns(frame.schema)) + mistakes
    raise_all(mistakes)


def _list_table_checks(task: Task) -> tuple[Check, ...]:
    return tuple(check for check in task.checks if not check.is_row_check)


@contextmanager
def _restore_on_failure(context: "TaskContext", task: Task, base: TableVersion | None) -> Iterator[None]:
    """Restore the previous versions of a task's tables if the block fails."""
    try:
        yield
    except BaseException:
        previous_locations = {task.table: base.location if base else None}
        if task.quarantine_table is not None:
            quarantine_head = read_quarantine_head(context, task)
            previous_locations[task.quarantine_table] = quarantine_head.location if quarantine_head else None
        with suppress(Exception):  # the first error is the one to report
            slots.place_tables(context.store.db, context.slot, previous_locations)
        raise
