"""Describe missing inputs, which do not exist and which this plan does not create, and how to create them."""

from collections.abc import Iterable

from runnel.declare.model.endpoints import Files, Manual
from runnel.declare.model.flow import Flow, Source, Task
from runnel.errors import Mistake, join_names
from runnel.names import TableName
from runnel.plan.facts import SourceChanges
from runnel.plan.reasons import describe_unfinished_files


def refuse_missing(task: Task, missing: Iterable[TableName]) -> None:
    """Raise a mistake if inputs of a task are missing."""
    if tables := [str(table) for table in missing]:
        raise Mistake(
            "PLAN_INPUT_MISSING",
            f"{task.table} reads {join_names(tables)}, which {'do' if len(tables) > 1 else 'does'} not exist yet",
            at=str(task.place),
            fix=f"run with -s +{task.table}, which also computes its inputs",
        )


def describe_missing_input(flow: Flow, task: Task, table: TableName, selected: frozenset[TableName]) -> Mistake:
    """Return the mistake of a task that reads a table that does not exist, with how to create it."""
    source = flow.sources.get(table)
    what = f"{task.table} reads {table}, which does not exist yet"
    if source is not None and isinstance(source.origin, Manual):
        what, fix = f"{what}: people fill it by hand", f"runnel load {table} FILE"
    elif table in selected:  # nothing new to read, and the version read before was reverted
        fix = f"runnel rewind {table} --to REF reads its files again"
    elif source is not None or table in flow.tasks:
        what, fix = f"{what} and is not selected", f"select it too: -s {table}, or -s +{task.table}; or exclude less"
    else:
        fix = f"declare {table}, or fill it with runnel load {table} FILE"
    return Mistake("PLAN_INPUT_MISSING", what, at=str(task.place), fix=fix)


def describe_missing_log(source: Source, log: TableName) -> Mistake:
    """Return the mistake of a table whose change log is empty and gets no rows."""
    what = f"{source.table} is built from its log {log}, which does not exist"
    return Mistake(
        "PLAN_INPUT_MISSING", what, at=str(source.place), fix=f"runnel rewind {log} --to REF reads its source again"
    )


def describe_no_files(source: Source, changes: SourceChanges) -> Mistake:
    """Return the mistake of a source that never had anything to read."""
    problem = changes.problem or ""
    if not isinstance(source.origin, Files):
        fix = f"run again when there is something to read; runnel rewind {source.table} --to REF"
        what = f"{source.table} has nothing to read, and no table yet: {problem}"
        return Mistake(
            "SOURCE_NOTHING", what, at=str(source.place), fix=f"{fix} reads again what was read before a revert"
        )
    glob = source.origin.glob
    if changes.unfinished_files:
        what = f"{source.table} has nothing to read yet: {describe_unfinished_files(changes.unfinished_files)}"
        return Mistake("SOURCE_NO_FILES", what, at=str(source.place), fix="run again when its writer has finished")
    detail = problem if glob and glob in problem else f"no file matches {glob}" + (f" ({problem})" if problem else "")
    fix = "put a file there, or correct the glob, which is relative to the project's folder; "
    schema = ', schema="order_id long, day date") with your columns' if source.origin.schema is None else ")"
    fix += f"if there may be no file yet, rn.files(..., may_be_empty=True{schema} creates a table without rows"
    return Mistake("SOURCE_NO_FILES", f"{source.table} has nothing to read: {detail}", at=str(source.place), fix=fix)
