"""Run a project: plan, compute, check, publish; plan again if another writer published first."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.errors import VersionConflict
from runnel.names import new_run_id
from runnel.plan.fingerprint.fingerprints import Fingerprinter
from runnel.project.execution.deliver_sinks import are_sinks_current, deliver_after
from runnel.project.planning.plan_project import ProjectPlan, load_project_flow, plan_project
from runnel.project.planning.run_request import RunRequest
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


def run_project(
    lake: "Lake",
    request: RunRequest,
    *,
    message: str | None = None,
    watch: ProgressCallback | None = None,
    on_plan: "Callable[[ProjectPlan], None] | None" = None,
    flow: "Flow | None" = None,
    delivers: bool = True,
    claimed_run: ClaimedRun | None = None,
) -> RunResult:
    """Run a request and return its result.

    `on_plan` receives each plan before it is executed. Steps that finished before another writer changed a table are
    reused by their key, so planning again costs little. `flow` is the project's flow if it is already loaded. Without
    `delivers`, the caller delivers to sinks. `claimed_run` is the queue entry of the run, if it has one.
    """
    from runnel.project.planning.fast_skip import plan_if_idle

    flow = flow or load_project_flow(lake)
    claimed_run = claimed_run or ClaimedRun(new_run_id(datetime.now(UTC)), trace=tracing.read_traceparent(os.environ))
    started_at = datetime.now(UTC)
    fingerprints = Fingerprinter(flow.root, lake.settings.secrets, lake.settings.conf).fingerprint_of
    answers = SourceAnswers(flow)
    idle_plan = plan_if_idle(lake.settings, request, flow, fingerprints, answers) if on_plan is None else None
    if idle_plan is not None:
        result = RunResult(
            None, "nothing", request.branch, None, _seconds_since(started_at), _list_skipped_steps(idle_plan)
        )
        if not delivers or are_sinks_current(lake.settings, flow, request.branch):
            return result
    else:
        stream_plan = _plan_with_streams(lake, request, flow, fingerprints, answers)
        if stream_plan is not None:
            result = _run_stream_plan(lake, stream_plan, claimed_run, message, watch, on_plan)
        else:
            result = _plan_and_execute(
                lake, request, flow, fingerprints, answers, claimed_run, started_at, message, watch, on_plan
            )
    return deliver_after(lake, flow, result, watch) if delivers else result


def _plan_with_streams(
    lake: "Lake",
    request: RunRequest,
    flow: "Flow",
    fingerprints: "Callable[[Task], Fingerprint]",
    answers: SourceAnswers,
) -> ProjectPlan | None:
    """Return the plan if it continues a stream, else None."""
    if request.verify or request.days is not None or not any(task.options.stream for task in flow.tasks.values()):
        return None
    project_plan = plan_project(lake, request, flow, fingerprints, answers)
    return project_plan if any(step.action == "stream" for step in project_plan.plan.steps) else None


def _run_stream_plan(
    lake: "Lake",
    stream_plan: ProjectPlan,
    claimed_run: ClaimedRun,
    message: str | None,
    watch: ProgressCallback | None,
    on_plan: "Callable[[ProjectPlan], None] | None",
) -> RunResult:
    """Execute a plan that continues streams; its other steps are executed in runs of their own."""
    from runnel.project.execution.run_streams import run_streams

    if on_plan is not None:
        on_plan(stream_plan)
    brief_parts: list[bool] = []  # whether each executed part reads little

    def note_part(part_plan: ProjectPlan) -> None:
        if part_plan.plan.work:
            brief_parts.append(_is_brief(lake, part_plan))

    def run_part(request: RunRequest) -> RunResult:
        now = datetime.now(UTC)
        part_run = ClaimedRun(new_run_id(now), cause=claimed_run.cause, due=claimed_run.due, trace=claimed_run.trace)
        return _plan_and_execute(
            lake,
            request,
            stream_plan.flow,
            stream_plan.fingerprints,
            SourceAnswers(stream_plan.flow),
            part_run,
            now,
            message,
            watch,
            note_part,
        )

    def get_spark() -> "SparkSession":
        """Return the session for a stream; if it must be started, then as for the steps that were executed before."""
        return lake.spark_provider.get(brief=bool(brief_parts) and brief_parts[-1])

    return run_streams(lake, stream_plan, claimed_run.run, run_part, watch or _ignore_event, get_spark=get_spark)


def _plan_and_execute(
    lake: "Lake",
    request: RunRequest,
    flow: "Flow",
    fingerprints: "Callable[[Task], Fingerprint]",
    answers: SourceAnswers,
    claimed_run: ClaimedRun,
    started_at: datetime,
    message: str | None,
    watch: ProgressCallback | None,
    on_plan: "Callable[[ProjectPlan], None] | None",
) -> RunResult:
    """Plan and execute; try again if another writer published first."""
    for attempt in range(1, _ATTEMPTS + 1):
        planned_at = started_at if attempt == 1 else datetime.now(UTC)
        with pin_lake(lake) as pin_and_sequence:
            project_plan = plan_project(lake, request, flow, fingerprints, answers)
            if on_plan is not None:
                on_plan(project_plan)
            if not project_plan.plan.work and not (request.verify and project_plan.plan.jvm):
                return RunResult(
                    None,
                    "nothing",
                    request.branch,
                    None,
                    _seconds_since(started_at),
                    _list_skipped_steps(project_plan.plan),
                )
            try:
                return execute_plan(
                    lake,
                    project_plan,
                    pin_and_sequence,
                    claimed_run.run,
                    started_at,
                    message,
                    watch,
                    claimed_run=claimed_run,
                    planned_at=planned_at,
                )
            except VersionConflict:
                if attempt == _ATTEMPTS:
                    raise
    raise AssertionError("unreachable")


@contextmanager
def pin_lake(lake: "Lake") -> Iterator[tuple[str, int]]:
    """Acquire a pin before anything is read from the lake, and yield it with the lake's current sequence number."""
    from runnel.lake.history.commits import read_sequence
    from runnel.lake.leases.pins import acquire_pin

    with acquire_pin(lake.store.db, "write") as pin:
        yield pin, lake.store.db.read(read_sequence)


def execute_plan(
    lake: "Lake",
    project_plan: ProjectPlan,
    pin_and_sequence: tuple[str, int],
    run: str,
    started_at: datetime,
    message: str | None,
    watch: ProgressCallback | None,
    publish: "Publish | None" = None,
    claimed_run: ClaimedRun | None = None,
    planned_at: datetime | None = None,
) -> RunResult:
    """Execute a plan that has work to do; `publish` replaces the way in which a run publishes its commit.

    `planned_at` is when planning began, if that was not when the run started.
    """
    from runnel.run.execute import execute_plan
    from runnel.run.observers import build_observers
    from runnel.run.provenance.run_basis import RunBasis
    from runnel.run.run_context import RunSpec

    is_brief = _is_brief(lake, project_plan)
    claimed_run = claimed_run or ClaimedRun(run)
    run_spec = RunSpec(
        run,
        project_plan.request.branch,
        project_plan.commit,
        project_plan.state,
        pin=pin_and_sequence[0],
        planned_sequence=pin_and_sequence[1],
        full_refresh=project_plan.request.full_refresh,
        verify=project_plan.request.verify,
        days=project_plan.request.days,
        parallel=choose_parallelism(),
        started_at=started_at,
        basis=RunBasis(project_plan.flow, lake.settings, _list_code_files(project_plan)),
        claim=claimed_run.claim,
        cancelled=claimed_run.cancelled,
        queued_seconds=claimed_run.queued_seconds,
        cause=claimed_run.cause,
        due=claimed_run.due,
        trace=claimed_run.trace,
        planned_at=planned_at or started_at,
    )
    return execute_plan(
        run_spec,
        project_plan.plan,
        lake.store,
        project_plan.flow,
        project_plan.facts,
        project_plan.fingerprints,
        lambda: lake.spark_provider.get(brief=is_brief),
        logs=lake.settings.home / "logs" / "runs",
        report_progress=watch or _ignore_event,
        message=message,
        publish=publish,
        observers=build_observers(lake.settings),
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


def _list_skipped_steps(plan: "Plan") -> tuple[StepResult, ...]:
    return tuple(StepResult(step.table, "skip", "skipped", step.reason) for step in plan.steps)


def _seconds_since(started_at: datetime) -> float:
    return (datetime.now(UTC) - started_at).total_seconds()


def _ignore_event(event: Event) -> None:
    """Ignore an event."""
