"""Compare the tables of a run with full computations of their tasks, before anything is published. Only reads.

What may differ by its nature is named instead: volatile tasks, functions that are not deterministic, references.
"""

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.declare.model.flow import Task
from runnel.errors import Cancelled, RunnelError, listed
from runnel.lake.flow_state import results
from runnel.plan.slices import is_reference
from runnel.run.analysis.plan_checks import Analysis, analyse
from runnel.run.checks.row_checks import ASIDE, failing, row_checks
from runnel.run.errors.task_errors import full_trace, tell
from runnel.run.results.run_result import Done, Event
from runnel.run.task.build_frame import build
from runnel.run.verify.compare_frames import Differences, differences

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from runnel.names import TableName
    from runnel.run.run_context import Work

NOT_COMPARED = "not compared"
_TABLE, _FULL = "the table", "the full computation"


def verify(work: "Work", steps: Iterable[Done]) -> tuple[Done, ...]:
    """Return the steps with what became of the comparison; one that differs has failed.

    A table that this run computed in full is not computed once more.
    """
    found: list[Done] = []
    for step in steps:
        task = work.flow.tasks.get(step.table)
        is_stopped = any(one.state == "cancelled" for one in found)
        found.append(step if task is None or is_stopped else _verified(work, task, step))
    return tuple(found)


def _verified(work: "Work", task: Task, step: Done) -> Done:
    if task.options.volatile:
        return _named(step, "it is volatile")
    if step.action == "full":
        return step
    started = time.monotonic()
    work.tell(Event("start", "comparing with a full computation", task.table, "verify"))
    try:
        work.check()
        done = _compared(work, task, step)
    except (KeyboardInterrupt, Cancelled):
        if work.loan is not None:
            work.loan.is_clean = False  # what was under way may not have ended
        return replace(step, state="cancelled", reason="cancelled")
    except Exception as error:
        work.log.write(f"trace of verifying {task.table}\n{full_trace(error)}")
        done = replace(step, state="failed", error=tell(error, task, work.root))
    finally:
        work.tell(Event("end", table=task.table, action="verify"))
    work.log.write(f"verified {task.table} in {time.monotonic() - started:.3f} s: {done.verified}")
    return done


def _compared(work: "Work", task: Task, step: Done) -> Done:
    loan = work.borrow()
    session = loan.session
    names = {table: f"`{loan.slot.name}`.`{table.layer}`.`{table.name}`" for table in (*task.reads, task.table)}
    session.sparkContext.setJobGroup(f"{work.order.run} verify {task.table}", f"verify {task.table}", True)
    frame = build(task, {table: session.table(names[table]) for table in task.reads}, session, work.root)
    analysis = analyse(frame, {names[table].replace("`", ""): table for table in task.reads})
    if analysis.nondeterministic:
        return _named(step, _by_chance(analysis))
    apart = differences(session.table(names[task.table]), _kept(frame, task), task.options.key or task.options.by)
    if not apart:
        return replace(step, verified=True)
    moved = _moved_references(work, task)
    if moved:
        rows = apart.only_left + apart.only_right
        return _named(
            step, f"its reference {listed(map(str, moved))} changed since it was computed; {rows:,} rows differ"
        )
    _forget(work, step)
    return replace(step, state="failed", verified=False, error=_differs(task, apart))


def _kept(frame: "DataFrame", task: Task) -> "DataFrame":
    """Return the rows of a frame that no check drops or puts into quarantine."""
    checks = [failing(check) for check in row_checks(task) if check.on_fail in ASIDE]
    return frame.where(f"NOT ({' OR '.join(checks)})") if checks else frame


def _named(step: Done, why: str) -> Done:
    return replace(step, warnings=(*step.warnings, f"{NOT_COMPARED}: {why}"))


def _by_chance(analysis: Analysis) -> str:
    return f"it uses {listed(analysis.nondeterministic)}, which may differ whenever it is computed"


def _moved_references(work: "Work", task: Task) -> "list[TableName]":
    """Return the references that were others when some of the table's slices may have been computed."""
    found = []
    for table in task.reads:
        if is_reference(task, table):
            used = results.contents_used(work.store.db, task.table, table)
            if used - {work.heads[table].content}:
                found.append(table)
    return found


def _forget(work: "Work", step: Done) -> None:
    """Let go of a wrong result that this run made, so that no later run takes it as known."""
    if step.state == "succeeded" and step.detail.get("run") == work.order.run:
        results.drop(work.store.db, step.table, str(step.detail["key"]))


def _differs(task: Task, apart: Differences) -> RunnelError:
    lines = "\n  ".join(apart.lines(_TABLE, _FULL))
    what = f"`{task.table}` is not what a full computation makes: {lines}"
    fix = f"`runnel run -s {task.table} --full-refresh` computes it in full"
    if task.options.by:
        fix += "; if it differs again later, its slices are not independent: correct by=, by_input= or lookback="
    return RunnelError("RUN_VERIFY_DIFFERS", what, at=str(task.place), fix=fix)
