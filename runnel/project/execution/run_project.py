"""Run a project: plan, compute, check, publish; plan again where somebody else was faster."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.errors import Moved
from runnel.names import new_run_id
from runnel.plan.fingerprint.fingerprints import Fingerprints
from runnel.project.execution.deliver_sinks import deliver_after, is_nothing_behind
from runnel.project.planning.plan_project import Planned, flow_of, plan_project
from runnel.project.planning.run_request import Wish
from runnel.project.planning.source_answers import Asked
from runnel.run.results.run_result import Done, Event, Ran, Watch
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow, Task
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.plan.steps import Plan
    from runnel.run.execute import Publish

_ATTEMPTS = 5
_LITTLE_BYTES = 32 << 20


@dataclass(frozen=True)
class Taken:
    """A run that was taken off the queue: by which claim, and what is set when it is to stop."""

    run: str
    claim: tuple[str, str] | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    queued_seconds: float = 0.0
    cause: str = "user"
    due: str | None = None
    trace: str | None = None


def run_project(
    lake: "Lake",
    wish: Wish,
    *,
    message: str | None = None,
    watch: Watch | None = None,
    planned: "Callable[[Planned], None] | None" = None,
    flow: "Flow | None" = None,
    delivers: bool = True,
    taken: Taken | None = None,
) -> Ran:
    """Carry out a wish and return what became of it.

    `planned` is shown each plan before it is carried out. What was finished before somebody else moved a table is
    known by its key, so planning again costs little. `flow` is what the project declares, where it is loaded already.
    Sinks are told, unless somebody else `delivers`. `taken` is the entry of the queue that it is, if it is one.
    """
    from runnel.project.planning.fast_skip import plan_of_nothing

    flow = flow or flow_of(lake)
    taken = taken or Taken(new_run_id(datetime.now(UTC)), trace=tracing.given(os.environ))
    started_at = datetime.now(UTC)
    fingerprints = Fingerprints(flow.root, lake.settings.secrets, lake.settings.conf).of
    asked = Asked(flow)
    idle = plan_of_nothing(lake.settings, wish, flow, fingerprints, asked) if planned is None else None
    if idle is not None:
        ran = Ran(None, "nothing", wish.branch, None, _since(started_at), _skipped(idle))
        if not delivers or is_nothing_behind(lake.settings, flow, wish.branch):
            return ran
    else:
        whole = _with_streams(lake, wish, flow, fingerprints, asked)
        if whole is not None:
            ran = _run_streams(lake, whole, taken, message, watch, planned)
        else:
            ran = _run(lake, wish, flow, fingerprints, asked, taken, started_at, message, watch, planned)
    return deliver_after(lake, flow, ran, watch) if delivers else ran


def _with_streams(
    lake: "Lake", wish: Wish, flow: "Flow", fingerprints: "Callable[[Task], Fingerprint]", asked: Asked
) -> Planned | None:
    """Return the plan, if a stream goes on in it."""
    if wish.verify or wish.days is not None or not any(task.options.stream for task in flow.tasks.values()):
        return None
    found = plan_project(lake, wish, flow, fingerprints, asked)
    return found if any(step.action == "stream" for step in found.plan.steps) else None


def _run_streams(
    lake: "Lake",
    whole: Planned,
    taken: Taken,
    message: str | None,
    watch: Watch | None,
    planned: "Callable[[Planned], None] | None",
) -> Ran:
    """Carry out a plan in which streams go on, the rest of it in runs of its own."""
    from runnel.project.execution.run_streams import run_streams

    if planned is not None:
        planned(whole)

    def part(wish: Wish) -> Ran:
        now = datetime.now(UTC)
        mine = Taken(new_run_id(now), cause=taken.cause, due=taken.due, trace=taken.trace)
        return _run(lake, wish, whole.flow, whole.fingerprints, Asked(whole.flow), mine, now, message, watch, None)

    return run_streams(lake, whole, taken.run, part, watch or _silent)


def _run(
    lake: "Lake",
    wish: Wish,
    flow: "Flow",
    fingerprints: "Callable[[Task], Fingerprint]",
    asked: Asked,
    taken: Taken,
    started_at: datetime,
    message: str | None,
    watch: Watch | None,
    planned: "Callable[[Planned], None] | None",
) -> Ran:
    """Plan and carry out, until nobody else has been faster."""
    for attempt in range(1, _ATTEMPTS + 1):
        planned_at = started_at if attempt == 1 else datetime.now(UTC)
        with hold(lake) as held:
            found = plan_project(lake, wish, flow, fingerprints, asked)
            if planned is not None:
                planned(found)
            if not found.plan.work and not (wish.verify and found.plan.jvm):
                return Ran(None, "nothing", wish.branch, None, _since(started_at), _skipped(found.plan))
            try:
                return carry_out(
                    lake, found, held, taken.run, started_at, message, watch, taken=taken, planned_at=planned_at
                )
            except Moved:
                if attempt == _ATTEMPTS:
                    raise
    raise AssertionError("unreachable")


@contextmanager
def hold(lake: "Lake") -> Iterator[tuple[str, int]]:
    """Hold a pin, taken before anything of the lake is looked up, and yield it with the lake's sequence then."""
    from runnel.lake.history.commits import sequence
    from runnel.lake.leases.pins import pinned

    with pinned(lake.store.db, "write") as pin:
        yield pin, lake.store.db.read(sequence)


def carry_out(
    lake: "Lake",
    found: Planned,
    held: tuple[str, int],
    run: str,
    started_at: datetime,
    message: str | None,
    watch: Watch | None,
    publish: "Publish | None" = None,
    taken: Taken | None = None,
    planned_at: datetime | None = None,
) -> Ran:
    """Execute a plan that does something; `publish` makes its commit in another way than as a run's own.

    `planned_at` is when its planning began, where that was not when the run started.
    """
    from runnel.run.execute import execute
    from runnel.run.observers import witnesses_of
    from runnel.run.provenance.run_basis import Basis
    from runnel.run.run_context import Order

    lake.is_brief = lake.once and _reads_little(found)
    taken = taken or Taken(run)
    order = Order(
        run,
        found.wish.branch,
        found.commit,
        found.state,
        pin=held[0],
        planned=held[1],
        full_refresh=found.wish.full_refresh,
        verify=found.wish.verify,
        days=found.wish.days,
        parallel=parallel(),
        started_at=started_at,
        basis=Basis(found.flow, lake.settings, _reached(found)),
        claim=taken.claim,
        cancelled=taken.cancelled,
        queued_seconds=taken.queued_seconds,
        cause=taken.cause,
        due=taken.due,
        trace=taken.trace,
        planned_at=planned_at or started_at,
    )
    return execute(
        order,
        found.plan,
        lake.store,
        found.flow,
        found.facts,
        found.fingerprints,
        lambda: lake.spark,
        logs=lake.settings.home / "logs" / "runs",
        watch=watch or _silent,
        message=message,
        publish=publish,
        witnesses=witnesses_of(lake.settings),
    )


def _reached(found: Planned) -> set[str]:
    """Return the files that the tasks to compute reach, whether or not they were imported yet."""
    tasks = [found.flow.tasks[step.table] for step in found.plan.work if step.table in found.flow.tasks]
    return {part.place.file for task in tasks for part in found.fingerprints(task).parts if part.place is not None}


def _reads_little(found: Planned) -> bool:
    """Tell whether all that a plan reads, files and tables as they are now, is small."""
    computed = [step for step in found.plan.steps if step.computes]
    arriving = sum(step.bytes or 0 for step in computed if step.table in found.flow.sources)
    read = {table for step in computed for table in found.flow.reads(step.table)}
    heads = [(table, head) for table in read if (head := found.facts.head(table)) is not None]
    sizes = [found.facts.size(table, head) for table, head in heads]
    return arriving + sum(size.bytes for size in sizes if size is not None) <= _LITTLE_BYTES


def parallel() -> int:
    """Return how many steps go side by side."""
    return max(2, min(8, os.cpu_count() or 2))


def _skipped(plan: "Plan") -> tuple[Done, ...]:
    return tuple(Done(step.table, "skip", "skipped", step.reason) for step in plan.steps)


def _since(at: datetime) -> float:
    return (datetime.now(UTC) - at).total_seconds()


def _silent(event: Event) -> None:
    """Watch nothing."""
