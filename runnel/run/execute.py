"""Execute a plan: do its steps, publish them as one commit, and leave a record of the run."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Cancelled, Moved, RunnelError
from runnel.lake.flow_state import runs
from runnel.lake.history.commits import Commit
from runnel.run.metrics.step_timing import Timeline
from runnel.run.observers import Ended, Witnesses
from runnel.run.publish_run import publish_run
from runnel.run.results.run_result import Done, Event, Ran, State, Watch
from runnel.run.run_context import Order, RunFacts, Work
from runnel.run.run_log import RunLog
from runnel.run.step_executor import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.declare.model.flow import Flow, Task
    from runnel.lake.store import Store
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.plan.steps import Plan

Publish = Callable[[Work, tuple[Done, ...]], Commit | None]
"""Makes the commit of a run from its steps."""


def execute(
    order: Order,
    plan: "Plan",
    store: "Store",
    flow: "Flow",
    facts: RunFacts,
    fingerprints: "Callable[[Task], Fingerprint]",
    spark: "Callable[[], SparkSession]",
    *,
    logs: Path,
    watch: Watch,
    message: str | None = None,
    publish: Publish | None = None,
    witnesses: Witnesses | None = None,
) -> Ran:
    """Execute a plan and return what became of it.

    Raises Moved where somebody else changed a table that the run wrote: then it is planned again on the new base,
    and what was finished is known by its key. `publish` makes the commit in another way than as a run's own.
    """
    started, log = time.monotonic(), RunLog(logs, order.run)
    timeline = Timeline(order)
    log.write(f"run {order.run} on {order.branch} from commit {order.commit.id}, {len(plan.work)} steps to do")
    publishes = publish or (lambda work, steps: publish_run(work, steps, message))
    follow = witnesses or Witnesses()
    work = Work(order, store, flow, facts, fingerprints, spark, _all(watch, follow), log)
    tables = {"tables": [str(step.table) for step in plan.work]}
    code = order.basis.code if order.basis else None
    runs.start(store.db, order.run, order.branch, store.author, tables, pin=order.pin, code=code)
    follow.begin(work)
    engine = Engine(work, plan.steps)
    fault: RunnelError | None = None
    steps: tuple[Done, ...] = ()
    state: State = "failed"
    commit: Commit | None = None
    try:
        with timeline.lap("steps"):
            steps = engine.run(needs_spark=plan.jvm)
        timeline.part("spark", "steps", engine.accounts.spark_seconds)
        state = _state(steps)
        if state == "succeeded" and order.verify:
            from runnel.run.verify.verify import verify

            with timeline.lap("verify"):
                steps = verify(work, steps)
            state = _state(steps)
        if state == "succeeded":
            with timeline.lap("publish"), _to_its_end():
                commit = publishes(work, steps)
            state = "succeeded" if commit else "nothing"
    except Moved as error:
        fault = error
        log.write(f"planned again: {error.what}")
        watch(Event("note", f"{error.what}; planning again"))
        raise
    except RunnelError as error:
        fault, state = error, "cancelled" if isinstance(error, Cancelled) else "failed"
        log.write(str(error))
        raise
    finally:
        ended_at = time.time()
        work.close()
        steps = engine.accounts.of(steps)
        with suppress(RunnelError):  # what went wrong first is what is told; the run then shows as lost
            told = {"steps": [step.json() for step in steps], **(order.basis.told() if order.basis else {})}
            told["timeline"] = dict(timeline)
            runs.finish(store.db, order.run, state, commit.id if commit else None, told)
        made = commit.id if commit else None
        is_moved, accounts = isinstance(fault, Moved), engine.accounts.found
        follow.end(Ended(state, made, steps, fault, is_moved, timeline, accounts, ended_at))
    seconds = time.monotonic() - started
    log.write(f"{state}, commit {commit.id if commit else 'none'}, {seconds:.3f} s")
    return Ran(order.run, state, order.branch, made, seconds, steps, str(log.path), timeline=dict(timeline))


def _all(watch: Watch, follow: Witnesses) -> Watch:
    def see(event: Event) -> None:
        watch(event)
        follow.see(event)

    return see


@contextmanager
def _to_its_end() -> Iterator[None]:
    """Leave Ctrl-C aside while publishing, so that nobody is told that nothing was published when it was."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)


def _state(steps: tuple[Done, ...]) -> State:
    for step in steps:
        if isinstance(step.error, Moved):
            raise step.error  # rows were erased meanwhile: it starts from the new versions
    if any(step.state == "cancelled" for step in steps):
        return "cancelled"
    return "failed" if any(step.state in ("failed", "blocked") for step in steps) else "succeeded"
