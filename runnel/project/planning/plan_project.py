"""Plan a project: load its flow, collect the facts, and let the planner decide."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.declare.loading.loader import load_flow
from runnel.errors import Mistake, join_names
from runnel.model.run_request import RunRequest
from runnel.names import TableName
from runnel.plan.fingerprint.fingerprints import Fingerprint, Fingerprinter
from runnel.plan.graph import Graph
from runnel.plan.planner import PlanScope, make_plan
from runnel.plan.selection import select_tables
from runnel.project.planning.lake_facts import LakeFacts
from runnel.project.planning.step_places import add_places
from runnel.project.work_places import read_work_place_rules

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.endpoints import Files
    from runnel.declare.model.flow import Flow, Task
    from runnel.lake.history.commits import Commit, LakeState
    from runnel.plan.steps import Plan
    from runnel.project.planning.source_answers import SourceAnswers


@dataclass(frozen=True)
class ProjectPlan:
    """A plan with everything that it was made from and that is needed to execute it."""

    request: RunRequest
    flow: "Flow"
    facts: LakeFacts
    fingerprints: "Callable[[Task], Fingerprint]"
    commit: "Commit"
    state: "LakeState"
    plan: "Plan"


def load_project_flow(lake: "Lake") -> "Flow":
    """Load the project's flow; Spark starts only if a flow file needs it while it is imported."""

    def suggest_schema(files: "Files") -> str | None:
        from runnel.connect.ingest.schema_suggestion import suggest_schema

        return suggest_schema(lake.settings.root, files)

    return load_flow(lake.settings, lambda: lake.spark, suggest_schema)


def plan_project(
    lake: "Lake",
    request: RunRequest,
    flow: "Flow | None" = None,
    fingerprints: "Callable[[Task], Fingerprint] | None" = None,
    answers: "SourceAnswers | None" = None,
) -> ProjectPlan:
    """Plan a request on the newest commit of its branch."""
    flow = flow or load_project_flow(lake)
    commit = lake.store.commit(_check_branch(lake, request.branch))
    return plan_state(lake, request, flow, commit, lake.store.state(commit), fingerprints=fingerprints, answers=answers)


def plan_state(
    lake: "Lake",
    request: RunRequest,
    flow: "Flow",
    commit: "Commit",
    state: "LakeState",
    *,
    fingerprints: "Callable[[Task], Fingerprint] | None" = None,
    answers: "SourceAnswers | None" = None,
) -> ProjectPlan:
    """Plan a request on any state of the lake, published or not.

    The caller may pass fingerprints and answers of sources that were computed before.
    """
    facts = LakeFacts(lake.store, flow, request.branch, commit, state, answers=answers)
    fingerprints = fingerprints or Fingerprinter(flow.root, lake.settings.secrets, lake.settings.conf).fingerprint_of
    graph = Graph(flow)

    def find_modified() -> set[TableName]:
        """Return the tasks whose code differs from the code that computed their table."""
        modified_tables = set()
        for table, task in flow.tasks.items():
            head = facts.head(table)
            result = facts.latest_result(table, head) if head else None
            if result is None or result.code.get("digest") != fingerprints(task).digest:
                modified_tables.add(table)
        return modified_tables

    selected = select_tables(graph, flow, request.select, request.exclude, find_modified)
    if not request.reads_sources:
        selected = frozenset(table for table in selected if flow.is_derived(table))
    if request.days is not None:
        selected = _select_tasks_below(graph, flow, selected, request)
    plan = make_plan(
        flow,
        facts,
        fingerprints,
        branch=request.branch,
        commit=commit.id,
        scope=PlanScope(selected, request.full_refresh, request.days),
    )
    if request.verify and any(step.table in flow.tasks for step in plan.steps):
        plan = replace(plan, jvm=True)
    plan = add_places(plan, read_work_place_rules(lake.settings), facts, flow.root)
    if flow.started_spark is not None:
        plan = replace(plan, notes=(*plan.notes, f"Spark was started by {flow.started_spark}, while it was imported"))
    return ProjectPlan(request, flow, facts, fingerprints, commit, state, plan)


def _select_tasks_below(
    graph: Graph, flow: "Flow", selected: frozenset[TableName], request: RunRequest
) -> frozenset[TableName]:
    """Return the selected tasks with every task downstream."""
    tasks = frozenset(table for table in selected | graph.downstream_of(selected) if table in flow.tasks)
    if not tasks:
        what = (
            f"{join_names(request.select)} selects no task, and there is none downstream"
            if request.select
            else "there is no task"
        )
        raise Mistake("BACKFILL_NO_TASK", what, fix="select tasks; `runnel plan --all` lists them")
    return tasks


def _check_branch(lake: "Lake", name: str) -> str:
    from runnel.lake.history.branches import get_branch

    return lake.store.db.read(lambda connection: get_branch(connection, name)).name
