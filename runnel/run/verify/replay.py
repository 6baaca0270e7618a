"""Compute what a commit published once more, from the versions that it used, and compare. Publishes nothing.

Everything happens in a slot: each task is computed in full, whichever way it was computed then.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runnel.declare.model.flow import Task
from runnel.errors import Broken, RunnelError, listed
from runnel.lake.iceberg.table_metadata import load
from runnel.lake.leases import slots
from runnel.names import TableName
from runnel.run import content_tally
from runnel.run.analysis.plan_checks import Analysis, analyse
from runnel.run.errors.task_errors import tell
from runnel.run.task.build_frame import build
from runnel.run.task_context import Context
from runnel.run.verify.compare_frames import Differences, differences
from runnel.run.write.quarantine_writer import put
from runnel.run.write.target_layout import columns_of, prepare

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from runnel.lake.store import Store

SAME, DIFFERENT, GONE, FAILED = "same", "different", "gone", "failed"
_LOST = ("FileNotFoundException", "NotFoundException", "NoSuchKey", "does not exist")


@dataclass(frozen=True)
class Published:
    """A table that a commit published and a task computed. `inputs` are the versions that it used."""

    table: TableName
    location: str
    content: str
    inputs: Mapping[TableName, str]
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class Replayed:
    """What a replay found about one table. `rows` are those published, `again` those computed now.

    `notes` say what may make the difference.
    """

    table: TableName
    state: str
    action: str = ""
    rows: int | None = None
    again: int | None = None
    seconds: float = 0.0
    found: Differences | None = None
    error: RunnelError | None = None
    notes: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        found = self.found or Differences()
        return {
            "table": str(self.table),
            "state": self.state,
            "action": self.action,
            "rows": self.rows,
            "rows_again": self.again,
            "seconds": round(self.seconds, 3),
            "only_published": found.only_left,
            "only_replayed": found.only_right,
            "columns": list(found.columns),
            "first": [{"published": pair.left, "replayed": pair.right} for pair in found.first],
            "error": self.error.parts() if self.error else None,
            "notes": list(self.notes),
        }


def replay(context: Context, task: Task, published: Published, root: "Path") -> Replayed:
    """Compute a table once more and compare it with what was published."""
    started, action = time.monotonic(), str(published.detail.get("action", ""))
    if (lost := _lost(context.store, published)) is not None:
        return Replayed(published.table, GONE, action, error=lost)
    try:
        done = _replayed(context, task, published, root)
    except Exception as error:
        told = tell(error, task, root)
        state = GONE if any(sign in str(error) for sign in _LOST) else FAILED
        done = Replayed(published.table, state, error=told)
    return replace(done, action=action, seconds=time.monotonic() - started)


def _replayed(context: Context, task: Task, published: Published, root: "Path") -> Replayed:
    slots.place(context.store.db, context.slot, dict(published.inputs))
    frames = {table: context.session.table(context.identifier(table)) for table in task.reads}
    frame = build(task, frames, context.session, root)
    known = {context.identifier(table).replace("`", ""): table for table in task.reads}
    found = analyse(frame, known)
    base = prepare(context.store, task, frame.schema, None)
    made = put(context, task, frame, "append", base, None).written
    rows = _rows(context.store, published.location)
    if content_tally.content(columns_of(frame.schema), made.tally) == published.content:
        return Replayed(task.table, SAME, rows=rows, again=made.tally.rows)
    one, other = (
        _as_table(context, name, at) for name, at in (("published", published.location), ("replayed", made.location))
    )
    differing = differences(one, other, task.options.key or task.options.by)
    done = Replayed(task.table, SAME, rows=rows, again=made.tally.rows)
    return replace(done, state=DIFFERENT, found=differing, notes=_notes(task, found)) if differing else done


def _rows(store: "Store", location: str) -> int | None:
    """Return how many rows a version has."""
    from runnel.lake.iceberg.table_size import size_of

    return size_of(load(store, location)).rows


def _as_table(context: Context, name: str, location: str) -> "DataFrame":
    """Return a version as a frame, under a name that no input has."""
    table = TableName("quarantine", f"{name}__replay")
    slots.place(context.store.db, context.slot, {table: location})
    return context.session.table(context.identifier(table))


def _lost(store: "Store", published: Published) -> RunnelError | None:
    """Return what to say where a version that is needed is gone, or None where all are there."""
    gone = []
    for table, location in (*published.inputs.items(), (published.table, published.location)):
        try:
            load(store, location)
        except Broken:
            gone.append(str(table))
    if not gone:
        return None
    what = f"`{published.table}` can't be replayed: the version of {listed(gone)} that it was made from is gone"
    fix = "retention let it go, or rows were erased from it; a tag keeps the versions of a commit for ever"
    return RunnelError("REPLAY_GONE", what, fix=fix)


def _notes(task: Task, found: Analysis) -> tuple[str, ...]:
    """Return what about a task may make it differ whenever it is computed."""
    notes = []
    if found.nondeterministic:
        notes.append(f"it uses {listed(found.nondeterministic)}, which may differ whenever it is computed")
    if task.options.volatile:
        notes.append("it is volatile: it may read what Runnel does not see")
    if task.options.reference:
        notes.append(f"its reference {listed(task.options.reference)} may have changed between its slices")
    if found.hidden:
        notes.append("it goes through an RDD or a checkpoint, where Runnel can't see what is read")
    return tuple(notes)
