"""Compute again what a commit published, from the versions that it used, and compare. Publishes nothing.

Everything happens in a slot: each task is computed in full, even if it was computed incrementally then.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runnel.declare.model.flow import Task
from runnel.errors import CorruptData, RunnelError, join_names
from runnel.lake.iceberg.table_metadata import load_metadata
from runnel.lake.leases import slots
from runnel.names import TableName
from runnel.run import content_tally
from runnel.run.analysis.plan_checks import PlanAnalysis, analyse_plan
from runnel.run.errors.task_errors import to_task_error
from runnel.run.task.build_frame import build_frame
from runnel.run.task_context import TaskContext
from runnel.run.verify.compare_frames import FrameDifferences, compare_frames
from runnel.run.write.quarantine_writer import write_checked_frame
from runnel.run.write.target_layout import list_columns, prepare_table
from runnel.run.write.write_frame import FrameTarget

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from runnel.lake.store import Store

SAME, DIFFERENT, GONE, FAILED = "same", "different", "gone", "failed"
_LOST = ("FileNotFoundException", "NotFoundException", "NoSuchKey", "does not exist")


@dataclass(frozen=True)
class PublishedTable:
    """A table that a commit published and a task computed. `inputs` are the versions that it used."""

    table: TableName
    location: str
    content: str
    inputs: Mapping[TableName, str]
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class TableReplay:
    """The replay of one table. `rows` counts the published rows, `rows_again` those computed now.

    `notes` name possible reasons for a difference.
    """

    table: TableName
    state: str
    action: str = ""
    rows: int | None = None
    rows_again: int | None = None
    seconds: float = 0.0
    frame_differences: FrameDifferences | None = None
    error: RunnelError | None = None
    notes: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        frame_differences = self.frame_differences or FrameDifferences()
        return {
            "table": str(self.table),
            "state": self.state,
            "action": self.action,
            "rows": self.rows,
            "rows_again": self.rows_again,
            "seconds": round(self.seconds, 3),
            "only_published": frame_differences.only_left,
            "only_replayed": frame_differences.only_right,
            "columns": list(frame_differences.columns),
            "first": [{"published": pair.left, "replayed": pair.right} for pair in frame_differences.first_pairs],
            "error": self.error.to_json() if self.error else None,
            "notes": list(self.notes),
        }


def replay_table(context: TaskContext, task: Task, published: PublishedTable, root: "Path") -> TableReplay:
    """Compute a table once more and compare it with what was published."""
    started, action = time.monotonic(), str(published.detail.get("action", ""))
    if (missing_error := _find_missing_version(context.store, published)) is not None:
        return TableReplay(published.table, GONE, action, error=missing_error)
    try:
        result = _compute_again(context, task, published, root)
    except Exception as error:
        task_error = to_task_error(error, task, root)
        state = GONE if any(sign in str(error) for sign in _LOST) else FAILED
        result = TableReplay(published.table, state, error=task_error)
    return replace(result, action=action, seconds=time.monotonic() - started)


def _compute_again(context: TaskContext, task: Task, published: PublishedTable, root: "Path") -> TableReplay:
    slots.place_tables(context.store.db, context.slot, dict(published.inputs))
    frames = {table: context.session.table(context.identifier(table)) for table in task.input_tables}
    frame = build_frame(task, frames, context.session, root)
    tables_by_identifier = {context.identifier(table).replace("`", ""): table for table in task.input_tables}
    analysis = analyse_plan(frame, tables_by_identifier)
    base = prepare_table(context.store, task, frame.schema, None)
    frame_write = write_checked_frame(context, task, frame, FrameTarget(base, "append"), None).frame_write
    rows = _count_rows(context.store, published.location)
    if content_tally.build_content_id(list_columns(frame.schema), frame_write.tally) == published.content:
        return TableReplay(task.table, SAME, rows=rows, rows_again=frame_write.tally.rows)
    published_frame, replayed_frame = (
        _read_as_table(context, name, location)
        for name, location in (("published", published.location), ("replayed", frame_write.location))
    )
    frame_differences = compare_frames(published_frame, replayed_frame, task.options.key or task.options.by)
    result = TableReplay(task.table, SAME, rows=rows, rows_again=frame_write.tally.rows)
    return (
        replace(result, state=DIFFERENT, frame_differences=frame_differences, notes=_list_notes(task, analysis))
        if frame_differences
        else result
    )


def _count_rows(store: "Store", location: str) -> int | None:
    """Return how many rows a version has."""
    from runnel.lake.iceberg.table_size import read_size

    return read_size(load_metadata(store, location)).rows


def _read_as_table(context: TaskContext, name: str, location: str) -> "DataFrame":
    """Return a version as a frame, under a name that no input has."""
    table = TableName("quarantine", f"{name}__replay")
    slots.place_tables(context.store.db, context.slot, {table: location})
    return context.session.table(context.identifier(table))


def _find_missing_version(store: "Store", published: PublishedTable) -> RunnelError | None:
    """Return the error if a version that the replay needs was removed; None if all exist."""
    missing_tables = []
    for table, location in (*published.inputs.items(), (published.table, published.location)):
        try:
            load_metadata(store, location)
        except CorruptData:
            missing_tables.append(str(table))
    if not missing_tables:
        return None
    what = (
        f"`{published.table}` can't be replayed: the version of "
        f"{join_names(missing_tables)} that it was computed from is gone"
    )
    fix = "its retention ended, or rows were erased from it; a tag keeps the versions of a commit for ever"
    return RunnelError("REPLAY_GONE", what, fix=fix)


def _list_notes(task: Task, analysis: PlanAnalysis) -> tuple[str, ...]:
    """Return why a task may give other rows each time it is computed."""
    notes = []
    if analysis.nondeterministic:
        notes.append(f"it uses {join_names(analysis.nondeterministic)}, which may differ each time it is computed")
    if task.options.volatile:
        notes.append("it is volatile: it may read what Runnel does not see")
    if task.options.reference:
        notes.append(f"its reference {join_names(task.options.reference)} may have changed between its slices")
    if analysis.hidden:
        notes.append("it goes through an RDD or a checkpoint, where Runnel can't see what is read")
    return tuple(notes)
