"""Run a project that has streams: what they read is published first, then they go on, then what reads them follows."""

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.errors import Mistake, RunnelError, nearest
from runnel.names import shown
from runnel.plan.graph import Graph
from runnel.run.results.run_result import Done, Event, Ran, State, Watch
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow, Task
    from runnel.lake.flow_state.streams import Stream
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.plan.steps import Step
    from runnel.project.planning.plan_project import Planned
    from runnel.project.planning.run_request import Wish

    Part = Callable[[Wish], Ran]
    """Runs what a wish selects."""

_WORST: tuple[State, ...] = ("failed", "cancelled", "succeeded", "nothing")


def run_streams(lake: "Lake", found: "Planned", run: str, part: "Part", watch: Watch) -> Ran:
    """Carry out a plan in which streams go on; `part` runs the rest of it, piece by piece."""
    started, parts = time.monotonic(), list[Ran]()
    is_well = True
    for piece in pieces(found):
        if not is_well:
            parts.append(_blocked(found, piece))
            continue
        if len(piece) == 1 and piece[0].action == "stream":
            task = found.flow.tasks[piece[0].table]
            parts.append(go_on(lake, found.flow, task, found.wish, found.fingerprints(task), run, watch))
        else:
            parts.append(part(replace(found.wish, select=tuple(str(step.table) for step in piece), exclude=())))
        is_well = parts[-1].state in ("succeeded", "nothing")
    state: State = min((one.state for one in parts), key=_WORST.index, default="nothing")
    commit = next((one.commit for one in reversed(parts) if one.commit), None)
    log = next((one.log for one in parts if one.log), None)
    steps = tuple(step for one in parts for step in one.steps)
    return Ran(run, state, found.wish.branch, commit, time.monotonic() - started, steps, log)


def pieces(found: "Planned") -> "Iterator[list[Step]]":
    """Yield the steps of a plan in the order in which they are carried out: a stream by itself, others together."""
    graph = Graph(found.flow)
    steps = {step.table: step for step in found.plan.steps}
    goes_on = [table for table, step in steps.items() if step.action == "stream"]
    left = [table for table in steps if table not in goes_on]
    for stream in goes_on:
        above = graph.above(stream)
        before = [table for table in left if table in above]
        if before:
            yield [steps[table] for table in before]
        left = [table for table in left if table not in above]
        yield [steps[stream]]
    if left:
        yield [steps[table] for table in left]


def go_on(lake: "Lake", flow: "Flow", task: "Task", wish: "Wish", code: "Fingerprint", run: str, watch: Watch) -> Ran:
    """Let one stream take what is there, and end."""
    from runnel.lake.flow_state import streams
    from runnel.run.openlineage.stream_observer import told
    from runnel.run.stream.stream_query import Course

    started = time.monotonic()
    tracing.configure(lake.settings.telemetry, lake.settings.name)
    watch(Event("start", "takes what is there", task.table, "stream"))
    done, commit = Done(task.table, "stream", "succeeded", "took what was there"), None
    try:
        if wish.full_refresh:
            streams.reset(lake.store.db, wish.branch, task.table)
        with ExitStack() as stack:
            course = Course.open(stack, lake.store, flow, task, wish.branch, code, run, lake.spark)
            stack.enter_context(told(lake.settings, course))
            course.start(is_endless=False)
            course.wait()
            course.held.told("idle")
        made, commit = course.batches, course.batches.commit
        done = replace(done, rows=made.rows, set_aside=made.set_aside, warnings=made.warnings)
    except RunnelError as error:
        done = replace(done, state="failed", reason="stopped", error=error)
    done = replace(done, seconds=time.monotonic() - started)
    watch(Event("end", table=task.table, action="stream", outcome=done))
    state: State = "failed" if done.error else "succeeded" if commit else "nothing"
    return Ran(run, state, wish.branch, commit, done.seconds, (done,))


def _blocked(found: "Planned", piece: "Iterable[Step]") -> Ran:
    """Return what becomes of steps when something before them has failed."""
    told = "what it needs has failed"
    steps = tuple(
        Done(step.table, step.action, "skipped" if step.action == "skip" else "blocked", told) for step in piece
    )
    return Ran(None, "nothing", found.wish.branch, None, 0.0, steps)


def reset_stream(lake: "Lake", name: str, branch: str) -> "Stream":
    """Let a stream begin anew, and return what it was; raise where there is none of that name."""
    from runnel.lake.flow_state import streams
    from runnel.names import TableName

    found = lake.store.db.read(lambda connection: streams.streams(connection, branch))
    known = {str(table): one for (_, table), one in found.items() if one.is_task}
    if name in known:
        streams.reset(lake.store.db, branch, TableName.parse(name))
        return known[name]
    close = nearest(name, known)
    what = f"there is no stream {shown(name)} on `{branch}`" + (f"; close: `{close}`" if close else "")
    raise Mistake("STREAM_UNKNOWN", what, fix="`runnel status` lists them; a source is read again by `runnel rewind`")
