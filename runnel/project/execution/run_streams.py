"""Run a project that has streams: first the tables that they read, then the streams, then the tables that read them."""

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from runnel.errors import Mistake, RunnelError, did_you_mean
from runnel.names import quote_value
from runnel.plan.graph import Graph
from runnel.run.results.run_result import Event, ProgressCallback, RunResult, RunState, StepResult
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Task
    from runnel.lake.flow_state.streams import StreamRecord
    from runnel.lake.store import Store
    from runnel.model.run_request import RunRequest
    from runnel.plan.steps import PlanStep
    from runnel.project.planning.plan_project import ProjectPlan

    RunPart = Callable[[RunRequest], RunResult]
    """Runs what a request selects."""

_WORST: tuple[RunState, ...] = ("failed", "cancelled", "succeeded", "nothing")


def run_streams(
    lake: "Lake",
    project_plan: "ProjectPlan",
    run: str,
    run_part: "RunPart",
    watch: ProgressCallback,
    *,
    get_spark: "Callable[[], SparkSession]",
) -> RunResult:
    """Execute a plan that continues streams; `run_part` runs the other steps, group by group.

    `get_spark` returns the session for a stream.
    """
    started, results = time.monotonic(), list[RunResult]()
    has_succeeded = True
    for step_group in group_steps(project_plan):
        if not has_succeeded:
            results.append(_block_steps(project_plan, step_group))
            continue
        if len(step_group) == 1 and step_group[0].action == "stream":
            task = project_plan.flow.tasks[step_group[0].table]
            results.append(run_stream_once(lake, project_plan, task, run, watch, get_spark=get_spark))
        else:
            results.append(
                run_part(
                    replace(project_plan.request, select=tuple(str(step.table) for step in step_group), exclude=())
                )
            )
        has_succeeded = results[-1].state in ("succeeded", "nothing")
    state: RunState = min((result.state for result in results), key=_WORST.index, default="nothing")
    commit = next((result.commit for result in reversed(results) if result.commit), None)
    log = next((result.log for result in results if result.log), None)
    steps = tuple(step for result in results for step in result.steps)
    return RunResult(run, state, project_plan.request.branch, commit, time.monotonic() - started, steps, log)


def group_steps(project_plan: "ProjectPlan") -> "Iterator[list[PlanStep]]":
    """Yield the steps of a plan in execution order, in groups: each stream alone, other steps together."""
    graph = Graph(project_plan.flow)
    steps = {step.table: step for step in project_plan.plan.steps}
    stream_tables = [table for table, step in steps.items() if step.action == "stream"]
    remaining = [table for table in steps if table not in stream_tables]
    for stream in stream_tables:
        above = graph.upstream_of(stream)
        before = [table for table in remaining if table in above]
        if before:
            yield [steps[table] for table in before]
        remaining = [table for table in remaining if table not in above]
        yield [steps[stream]]
    if remaining:
        yield [steps[table] for table in remaining]


def run_stream_once(
    lake: "Lake",
    project_plan: "ProjectPlan",
    task: "Task",
    run: str,
    watch: ProgressCallback,
    *,
    get_spark: "Callable[[], SparkSession]",
) -> RunResult:
    """Run one stream until it has read all available input, then stop it."""
    from runnel.lake.flow_state import streams
    from runnel.run.openlineage.stream_observer import StreamLineage
    from runnel.run.stream.stream_query import StreamQuery, StreamSpec

    started, request = time.monotonic(), project_plan.request
    stream_spec = StreamSpec(project_plan.flow, task, request.branch, project_plan.fingerprints(task), run)
    tracing.configure(lake.settings.telemetry, lake.settings.name)
    watch(Event("start", "reads all available rows", task.table, "stream"))
    step_result, commit = StepResult(task.table, "stream", "succeeded", "read all available rows"), None
    try:
        if request.full_refresh:
            streams.reset(lake.store.db, request.branch, task.table)
        with ExitStack() as stack:
            lineage = StreamLineage(lake.settings, lake.store, stream_spec)
            stream_query = StreamQuery.open(stack, lake.store, stream_spec, get_spark(), [lineage.on_batch_done])
            stack.enter_context(lineage.report(stream_query.publisher))
            stream_query.start(is_endless=False)
            stream_query.wait()
            stream_query.claim.set_state("idle")
        batches, commit = stream_query.publisher, stream_query.publisher.commit
        step_result = replace(
            step_result, rows=batches.rows, set_aside=batches.quarantined_rows, warnings=batches.warnings
        )
    except RunnelError as error:
        step_result = replace(step_result, state="failed", reason="stopped", error=error)
    step_result = replace(step_result, seconds=time.monotonic() - started)
    watch(Event("end", table=task.table, action="stream", outcome=step_result))
    state: RunState = "failed" if step_result.error else "succeeded" if commit else "nothing"
    return RunResult(run, state, request.branch, commit, step_result.seconds, (step_result,))


def _block_steps(project_plan: "ProjectPlan", step_group: "Iterable[PlanStep]") -> RunResult:
    """Return the result of steps that can't run because an earlier step has failed."""
    reason = "a table that it needs has failed"
    steps = tuple(
        StepResult(step.table, step.action, "skipped" if step.action == "skip" else "blocked", reason)
        for step in step_group
    )
    return RunResult(None, "nothing", project_plan.request.branch, None, 0.0, steps)


def reset_stream(store: "Store", name: str, branch: str) -> "StreamRecord":
    """Reset a stream so that it starts from scratch, and return its previous state; raise if it does not exist."""
    from runnel.lake.flow_state import streams
    from runnel.names import TableName

    all_streams = store.db.read(lambda connection: streams.list_streams(connection, branch))
    streams_by_name = {str(table): stream for (_, table), stream in all_streams.items() if stream.is_task}
    if name in streams_by_name:
        streams.reset(store.db, branch, TableName.parse(name))
        return streams_by_name[name]
    what = f"there is no stream {quote_value(name)} on `{branch}`" + did_you_mean(name, streams_by_name)
    raise Mistake("STREAM_UNKNOWN", what, fix="`runnel status` lists them; a source is read again by `runnel rewind`")
