"""Run a project: plan, compute, check, publish; plan again if another writer published first."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from runnel.errors import VersionConflict
from runnel.model.run_request import RunRequest
from runnel.names import new_run_id
from runnel.plan.fingerprint.fingerprints import Fingerprinter
from runnel.project.execution.deliver_sinks import are_sinks_current, deliver_after
from runnel.project.planning.plan_project import ProjectPlan, load_project_flow, plan_project
from runnel.project.planning.source_answers import SourceAnswers
from runnel.run.results.run_result import Event, ProgressCallback, RunResult, StepResult
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow, Task
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.plan.steps import Plan
    from runnel.run.execute import Publish
    from runnel.run.run_context import RunSpec

_ATTEMPTS = 5
_LITTLE_BYTES = 32 << 20


@dataclass(frozen=True)
class ClaimedRun:
    """A run that was claimed from the queue, its claim, and the event that is set when it has to stop."""

    run: str
    claim: tuple[str, str] | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    queued_seconds: float = 0.0
    cause: str = "user"
    due: str | None = None
    trace: str | None = None


@dataclass(frozen=True)
class ProjectRun:
    """A run of a project that has started: its claim, when it started, its commit's message, and its progress.

    `on_execute` is called with each plan that is about to be executed.
    """

    lake: "Lake"
    claimed_run: ClaimedRun
    started_at: datetime
    message: str | None = None
    watch: ProgressCallback | None = None
    on_execute: Callable[[ProjectPlan], None] | None = None


@dataclass(frozen=True)
class _PlanInputs:
    """What every plan of one run is made from, apart from the lake; the sources are asked once."""

    request: RunRequest
    flow: "Flow"
    fingerprints: "Callable[[Task], Fingerprint]"
    answers: SourceAnswers

    def plan(self, lake: "Lake") -> ProjectPlan:
        """Plan on the newest commit."""
        return plan_project(lake, self.request, self.flow, self.fingerprints, self.answers)


def run_project(
    lake: "Lake",
    request: RunRequest,
    *,
    watch: ProgressCallback | None = None,
    flow: "Flow | None" = None,
    delivers: bool = True,
    claimed_run: ClaimedRun | None = None,
) -> RunResult:
    """Run a request and return its result.

    Steps that finished before another writer changed a table are reused by their key, so planning again costs little.
    `flow` is the project's flow if it is already loaded. Without `delivers`, the caller delivers to sinks.
    `claimed_run` is the queue entry of the run, if it has one.
    """
    from runnel.project.planning.fast_skip import plan_if_idle

    flow = flow or load_project_flow(lake)
    claimed_run = claimed_run or ClaimedRun(new_run_id(datetime.now(UTC)), trace=tracing.read_traceparent(os.environ))
    project_run = ProjectRun(lake, claimed_run, datetime.now(UTC), request.message, watch)
    fingerprints = Fingerprinter(flow.root, lake.settings.secrets, lake.settings.conf).fingerprint_of
    plan_inputs = _PlanInputs(request, flow, fingerprints, SourceAnswers(flow))
    idle_plan = plan_if_idle(lake.settings, request, flow, fingerprints, plan_inputs.answers)
    if idle_plan is not None:
        result = _make_idle_result(project_run, request, idle_plan)
        if not delivers or are_sinks_current(lake.settings, flow, request.branch):
            return result
    else:
        result = _plan_and_execute(project_run, plan_inputs, runs_streams=not request.verify and request.days is None)
    return deliver_after(lake, flow, result, watch) if delivers else result


def _plan_and_execute(project_run: ProjectRun, plan_inputs: _PlanInputs, *, runs_streams: bool) -> RunResult:
    """Plan and execute; try again if another writer published first.

    With `runs_streams`, a plan that continues streams is executed in parts. Only the first attempt can be: later ones
    belong to a run that has started.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        planned_at = project_run.started_at if attempt == 1 else datetime.now(UTC)
        with pin_lake(project_run.lake) as pin_and_sequence:
            project_plan = plan_inputs.plan(project_run.lake)
            is_stream_plan = runs_streams and attempt == 1 and _continues_streams(project_plan)
            if not is_stream_plan:
                if not _has_work(project_plan):
                    _record_idle_attempt(project_run, attempt)
                    return _make_idle_result(project_run, plan_inputs.request, project_plan.plan)
                try:
                    return execute_plan(project_run, project_plan, pin_and_sequence, planned_at=planned_at)
                except VersionConflict:
                    if attempt == _ATTEMPTS:
                        raise
        if is_stream_plan:  # without the pin: each part acquires its own
            return _run_stream_plan(project_run, project_plan)
    raise AssertionError("unreachable")


def _record_idle_attempt(project_run: ProjectRun, attempt: int) -> None:
    """Record that nothing was left to do, if the run was recorded by an earlier attempt."""
    if attempt > 1:
        from runnel.lake.flow_state import runs

        runs.mark_nothing(project_run.lake.store.db, project_run.claimed_run.run)


def _has_work(project_plan: ProjectPlan) -> bool:
    return bool(project_plan.plan.work) or (project_plan.request.verify and project_plan.plan.jvm)


def _continues_streams(project_plan: ProjectPlan) -> bool:
    return any(step.action == "stream" for step in project_plan.plan.steps)


def _run_stream_plan(project_run: ProjectRun, stream_plan: ProjectPlan) -> RunResult:
    """Execute a plan that continues streams; its other steps are executed in runs of their own."""
    from runnel.project.execution.run_streams import run_streams

    lake, claimed_run, flow = project_run.lake, project_run.claimed_run, stream_plan.flow
    brief_parts: list[bool] = []  # whether each executed part reads little

    def note_part(part_plan: ProjectPlan) -> None:
        brief_parts.append(_is_brief(lake, part_plan))

    def run_part(request: RunRequest) -> RunResult:
        now = datetime.now(UTC)
        part_run = ClaimedRun(new_run_id(now), cause=claimed_run.cause, due=claimed_run.due, trace=claimed_run.trace)
        return _plan_and_execute(
            replace(project_run, claimed_run=part_run, started_at=now, on_execute=note_part),
            _PlanInputs(request, flow, stream_plan.fingerprints, SourceAnswers(flow)),
            runs_streams=False,
        )

    def get_spark() -> "SparkSession":
        """Return the session for a stream; if it must be started, then as for the steps that were executed before."""
        return lake.spark_provider.get(brief=bool(brief_parts) and brief_parts[-1])

    watch = project_run.watch or _ignore_event
    return run_streams(lake, stream_plan, claimed_run.run, run_part, watch, get_spark=get_spark)


def _make_idle_result(project_run: ProjectRun, request: RunRequest, plan: "Plan") -> RunResult:
    """Return the result of a run that has nothing to do."""
    seconds = (datetime.now(UTC) - project_run.started_at).total_seconds()
    steps = tuple(StepResult(step.table, "skip", "skipped", step.reason) for step in plan.steps)
    return RunResult(None, "nothing", request.branch, None, seconds, steps)


@contextmanager
def pin_lake(lake: "Lake") -> Iterator[tuple[str, int]]:
    """Acquire a pin before anything is read from the lake, and yield it with the lake's current sequence number."""
    from runnel.lake.history.commits import read_sequence
    from runnel.lake.leases.pins import acquire_pin

    with acquire_pin(lake.store.db, "write") as pin:
        yield pin, lake.store.db.read(read_sequence)


def execute_plan(
    project_run: ProjectRun,
    project_plan: ProjectPlan,
    pin_and_sequence: tuple[str, int],
    *,
    publish: "Publish | None" = None,
    planned_at: datetime | None = None,
) -> RunResult:
    """Execute a plan that has work to do; `publish` replaces the way in which a run publishes its commit.

    `planned_at` is when planning began, if that was not when the run started.
    """
    from runnel.project.work_places import read_work_place_rules
    from runnel.run.execute import execute_plan
    from runnel.run.observers import build_observers
    from runnel.run.publish_run import publish_run
    from runnel.run.run_context import RunResources
    from runnel.run.run_recorder import RunReporting

    lake, is_brief = project_run.lake, _is_brief(project_run.lake, project_plan)
    if project_run.on_execute is not None:
        project_run.on_execute(project_plan)
    run_spec = _build_run_spec(project_run, project_plan, pin_and_sequence, planned_at or project_run.started_at)
    resources = RunResources(
        lake.store,
        project_plan.flow,
        project_plan.facts,
        project_plan.fingerprints,
        lambda: lake.spark_provider.get(brief=is_brief),
        read_work_place_rules(lake.settings),
    )
    reporting = RunReporting(
        lake.settings.home / "logs" / "runs", project_run.watch or _ignore_event, build_observers(lake.settings)
    )
    publish = publish or partial(publish_run, message=project_run.message)
    return execute_plan(run_spec, project_plan.plan, resources, reporting, publish)


def _build_run_spec(
    project_run: ProjectRun, project_plan: ProjectPlan, pin_and_sequence: tuple[str, int], planned_at: datetime
) -> "RunSpec":
    from runnel.run.provenance.run_basis import RunBasis
    from runnel.run.run_context import RunSpec

    claimed_run, request = project_run.claimed_run, project_plan.request
    return RunSpec(
        claimed_run.run,
        request.branch,
        project_plan.commit,
        project_plan.state,
        pin=pin_and_sequence[0],
        planned_sequence=pin_and_sequence[1],
        full_refresh=request.full_refresh,
        verify=request.verify,
        days=request.days,
        parallel=choose_parallelism(),
        started_at=project_run.started_at,
        basis=RunBasis(project_plan.flow, project_run.lake.settings, _list_code_files(project_plan)),
        claim=claimed_run.claim,
        cancelled=claimed_run.cancelled,
        queued_seconds=claimed_run.queued_seconds,
        cause=claimed_run.cause,
        due=claimed_run.due,
        trace=claimed_run.trace,
        planned_at=planned_at,
    )


def _list_code_files(project_plan: ProjectPlan) -> set[str]:
    """Return the code files that the tasks to compute depend on, whether or not they were imported yet."""
    tasks = [
        project_plan.flow.tasks[step.table] for step in project_plan.plan.work if step.table in project_plan.flow.tasks
    ]
    return {
        part.place.file for task in tasks for part in project_plan.fingerprints(task).parts if part.place is not None
    }


def _is_brief(lake: "Lake", project_plan: ProjectPlan) -> bool:
    """Return whether the process executes a plan that reads little, and then ends."""
    return lake.spark_provider.once and _reads_few_bytes(project_plan)


def _reads_few_bytes(project_plan: ProjectPlan) -> bool:
    """Return whether the files and current tables that a plan reads are small."""
    computed_steps = [step for step in project_plan.plan.steps if step.computes]
    arriving_bytes = sum(step.bytes or 0 for step in computed_steps if step.table in project_plan.flow.sources)
    read_tables = {table for step in computed_steps for table in project_plan.flow.inputs_of(step.table)}
    heads = [(table, head) for table in read_tables if (head := project_plan.facts.head(table)) is not None]
    sizes = [project_plan.facts.size(table, head) for table, head in heads]
    return arriving_bytes + sum(size.bytes for size in sizes if size is not None) <= _LITTLE_BYTES


def choose_parallelism() -> int:
    """Return how many steps run in parallel."""
    return max(2, min(8, os.cpu_count() or 2))


def _ignore_event(event: Event) -> None:
    """Ignore an event."""
