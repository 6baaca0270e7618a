"""Do one step of a run: read new files, take a known result, or compute a task.

What to do is decided again here, because now the inputs are there.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.lake.flow_state import results
from runnel.plan.decisions.task import decide_task
from runnel.plan.facts import Head
from runnel.plan.steps import Step
from runnel.run.results.run_result import Done, Event
from runnel.run.retry import attempt
from runnel.run.task.compute import compute, provenance

if TYPE_CHECKING:
    from runnel.declare.model.flow import Task
    from runnel.names import TableName
    from runnel.run.run_context import Work


def do(work: "Work", step: Step, inputs: "Mapping[TableName, Head | None]") -> Done:
    """Do one step and return what became of its table."""
    work.check()
    if step.table in work.flow.sources:
        from runnel.run.sources.file_source import ingest

        return ingest(work, step)
    task = work.flow.tasks[step.table]
    if task.options.stream:
        return Done(task.table, "skip", "skipped", "a stream, which goes on by itself")
    mark = work.fingerprints(task)
    order = work.order
    decided = decide_task(
        task, mark, inputs, work.facts, branch=order.branch, full_refresh=order.full_refresh, days=order.days
    )
    if decided.action == "skip":
        return Done(task.table, "skip", "skipped", decided.reason)
    if decided.action == "reuse":
        if (done := _reuse(work, task, decided)) is not None:
            return done
        decided = replace(decided, action="full", reason="its known result is gone (retention)")
    return _compute(work, task, decided, {table: head for table, head in inputs.items() if head is not None})


def _reuse(work: "Work", task: "Task", decided: Step) -> Done | None:
    """Take a known result, unless its time has run out since it was looked up."""
    known = decided.known
    assert known is not None
    if not results.use(work.store.db, known):
        return None
    detail = provenance(known)
    return Done(
        task.table,
        "reuse",
        "succeeded",
        decided.reason,
        rows=known.rows,
        head=known.head,
        aside=known.quarantine,
        detail=detail,
    )


def _compute(work: "Work", task: "Task", decided: Step, inputs: "Mapping[TableName, Head]") -> Done:
    work.tell(Event("start", decided.reason, task.table, decided.action))

    def again(number: int, pause: float, error: BaseException) -> None:
        text = f"attempt {number} failed ({str(error).splitlines()[0][:200] if str(error) else type(error).__name__}); "
        work.tell(Event("retry", f"{text}again in {pause:.0f} s", task.table, decided.action))

    return attempt(lambda: compute(work, task, decided, inputs), task.options.retries, work.cancelled, again)
