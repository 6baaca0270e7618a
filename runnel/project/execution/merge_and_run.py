"""Merge and recompute: tables of tasks that changed on both branches are recomputed in the merge's commit."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.errors import Cancelled, Mistake, join_names
from runnel.lake.merge.merge import MergeResult, PublishMerge, merge_branch
from runnel.model.run_request import RunRequest
from runnel.names import new_run_id
from runnel.project.execution.run_project import ClaimedRun, ProjectRun, execute_plan, pin_lake
from runnel.project.planning.plan_project import ProjectPlan, load_project_flow, plan_state

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.lake.history.commits import Commit, LakeState
    from runnel.lake.merge.merge_plan import MergePlan
    from runnel.run.results.run_result import ProgressCallback, RunResult, StepResult
    from runnel.run.run_context import RunContext


def merge_and_run(
    lake: "Lake",
    source: str,
    into: str,
    *,
    message: str | None = None,
    watch: "ProgressCallback | None" = None,
    on_result: "Callable[[RunResult], None] | None" = None,
) -> MergeResult:
    """Merge a branch, computing what has to be computed with the project's current code.

    `on_result` receives the result of the computation. Sources are not read.
    """
    flow = load_project_flow(lake)
    run, started_at = new_run_id(datetime.now(UTC)), datetime.now(UTC)

    def compute(plan: "MergePlan", state: "LakeState", planned_sequence: int, finish: PublishMerge) -> "Commit":
        project_plan = _plan_merge(lake, flow, plan, state)
        commits: list[Commit] = []

        def publish(work: "RunContext", steps: "tuple[StepResult, ...]") -> "Commit":
            from runnel.run.publish_run import list_changes

            commits.append(
                finish(list_changes(work, steps), work.slot_lease.slot.lease if work.slot_lease else None, run)
            )
            return commits[-1]

        project_run = ProjectRun(lake, ClaimedRun(run), started_at, watch=watch)
        with pin_lake(lake) as (pin, _):
            result = execute_plan(project_run, project_plan, (pin, planned_sequence), publish=publish)
        if on_result is not None:
            on_result(result)
        if result.state == "cancelled":
            raise Cancelled
        if result.errors:
            raise result.errors[0]
        return commits[-1]

    return merge_branch(lake.store, source, into, message, compute)


def _plan_merge(lake: "Lake", flow: "Flow", plan: "MergePlan", state: "LakeState") -> ProjectPlan:
    """Plan the tables that must be computed, and everything downstream of tables that the merge changes."""
    needed = list(dict.fromkeys(step.computed_with or step.table for step in plan.with_action("compute")))
    unknown = [str(table) for table in needed if not flow.is_derived(table)]
    if unknown:
        what = f"{join_names(unknown)} must be computed to merge, but no task of the project computes it any more"
        raise Mistake(
            "MERGE_TASK_UNKNOWN", what, fix="bring its flow file back, or drop the table on one of the branches"
        )
    from runnel.plan.graph import Graph

    changed = [
        step.table
        for step in plan.steps
        if step.changes_table and (step.table in flow.tasks or step.table in flow.sources)
    ]
    selected = set(needed) | (Graph(flow).downstream_of(changed) if changed else set())
    names = tuple(sorted(str(table) for table in selected if flow.is_derived(table)))
    return plan_state(lake, RunRequest(names, (), plan.into, reads_sources=False), flow, plan.target, state)
