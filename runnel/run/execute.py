"""Execute a plan: do its steps, publish them as one commit, and leave a record of the run."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import Moved, RunnelError
from runnel.lake import runs
from runnel.lake.commits import Commit
from runnel.lake.pins import pinned
from runnel.lake.publish import sequence
from runnel.run.engine import Engine
from runnel.run.log import RunLog
from runnel.run.publishing import publish_run
from runnel.run.report import Done, Event, Ran, State, Watch
from runnel.run.work import Order, RunFacts, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.declare.flow import Flow, Task
    from runnel.lake.store import Store
    from runnel.plan.fingerprint import Fingerprint
    from runnel.plan.steps import Plan

Publish = Callable[[Work, tuple[Done, ...], str, int], Commit | None]
"""Makes the commit of a run from its steps, its pin and the sequence at which it was planned."""


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
) -> Ran:
    """Execute a plan and return what became of it.

    Raises Moved where somebody else changed a table that the run wrote: then it is planned again on the new base,
    and what was finished is known by its key. `publish` makes the commit in another way than as a run's own.
    """
    started, log = time.monotonic(), RunLog(logs, order.run)
    log.write(f"run {order.run} on {order.branch} from commit {order.commit.id}, {len(plan.work)} steps to do")
    publishes = publish or (lambda work, steps, pin, planned: publish_run(work, steps, message, pin, planned))
    with pinned(store.db, "write") as pin:
        planned = store.db.read(sequence)
        work = Work(order, store, flow, facts, fingerprints, spark, watch, log)
        tables = {"tables": [str(step.table) for step in plan.work]}
        runs.start(store.db, order.run, order.branch, store.author, tables, pin=pin)
        steps: tuple[Done, ...] = ()
        state: State = "failed"
        commit: Commit | None = None
        try:
            steps = Engine(work, plan.steps).run(needs_spark=plan.jvm)
            state = _state(steps)
            if state == "succeeded":
                commit = publishes(work, steps, pin, planned)
                state = "succeeded" if commit else "nothing"
        except Moved as error:
            log.write(f"planned again: {error.what}")
            watch(Event("note", f"{error.what}; planning again"))
            raise
        except RunnelError as error:
            log.write(str(error))
            raise
        finally:
            work.close()
            told = {"steps": [step.json() for step in steps]}
            runs.finish(store.db, order.run, state, commit.id if commit else None, told)
    log.write(f"{state}, commit {commit.id if commit else 'none'}, {time.monotonic() - started:.3f} s")
    seconds = time.monotonic() - started
    return Ran(order.run, state, order.branch, commit.id if commit else None, seconds, steps, str(log.path))


def _state(steps: tuple[Done, ...]) -> State:
    if any(step.state == "cancelled" for step in steps):
        return "cancelled"
    return "failed" if any(step.state in ("failed", "blocked") for step in steps) else "succeeded"
