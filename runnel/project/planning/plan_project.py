"""Plan a project: load its flow, gather the facts, and let the planner decide."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.declare.loading.loader import load_flow
from runnel.errors import Mistake, listed
from runnel.names import TableName
from runnel.plan.fingerprint.fingerprints import Fingerprint, Fingerprints
from runnel.plan.graph import Graph
from runnel.plan.planner import make_plan
from runnel.plan.selection import select as chosen
from runnel.project.planning.lake_facts import LakeFacts
from runnel.project.planning.run_request import Wish

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow, Task
    from runnel.lake.history.commits import Commit, State
    from runnel.plan.steps import Plan
    from runnel.project.planning.source_answers import Asked


@dataclass(frozen=True)
class Planned:
    """A plan, with all that was used to make it and is needed to carry it out."""

    wish: Wish
    flow: "Flow"
    facts: LakeFacts
    fingerprints: "Callable[[Task], Fingerprint]"
    commit: "Commit"
    state: "State"
    plan: "Plan"


def flow_of(lake: "Lake") -> "Flow":
    """Load what the project declares; Spark starts only where a flow file needs it while it is imported."""
    return load_flow(lake.settings, start_spark=lambda: lake.spark)


def plan_project(
    lake: "Lake",
    wish: Wish,
    flow: "Flow | None" = None,
    fingerprints: "Callable[[Task], Fingerprint] | None" = None,
    asked: "Asked | None" = None,
) -> Planned:
    """Plan what a wish takes, on the newest commit of its branch."""
    flow = flow or flow_of(lake)
    commit = lake.store.commit(_branch(lake, wish.branch))
    return plan_state(lake, wish, flow, commit, lake.store.state(commit), fingerprints, asked)


def plan_state(
    lake: "Lake",
    wish: Wish,
    flow: "Flow",
    commit: "Commit",
    state: "State",
    fingerprints: "Callable[[Task], Fingerprint] | None" = None,
    asked: "Asked | None" = None,
) -> Planned:
    """Plan on any state of the lake, published or not.

    Fingerprints that are known already need not be made again, nor feeds be asked again.
    """
    facts = LakeFacts(lake.store, flow, wish.branch, commit, state, asked)
    fingerprints = fingerprints or Fingerprints(flow.root, lake.settings.secrets, lake.settings.conf).of
    graph = Graph(flow)

    def modified() -> set[TableName]:
        """Return the tasks whose code is not the one that made their table."""
        found = set()
        for table, task in flow.tasks.items():
            head = facts.head(table)
            made = facts.made(table, head) if head else None
            if made is None or made.code.get("digest") != fingerprints(task).digest:
                found.add(table)
        return found

    selected = chosen(graph, flow, wish.select, wish.exclude, modified)
    if not wish.reads_sources:
        selected = frozenset(table for table in selected if flow.makes(table))
    if wish.days is not None:
        selected = _tasks_below(graph, flow, selected, wish)
    plan = make_plan(
        flow,
        facts,
        fingerprints,
        branch=wish.branch,
        commit=commit.id,
        selected=selected,
        full_refresh=wish.full_refresh,
        days=wish.days,
    )
    if wish.verify and any(step.table in flow.tasks for step in plan.steps):
        plan = replace(plan, jvm=True)
    if flow.started_spark is not None:
        plan = replace(plan, notes=(*plan.notes, f"Spark was started by {flow.started_spark}, while it was imported"))
    return Planned(wish, flow, facts, fingerprints, commit, state, plan)


def _tasks_below(graph: Graph, flow: "Flow", selected: frozenset[TableName], wish: Wish) -> frozenset[TableName]:
    """Return the selected tasks with every task downstream."""
    found = frozenset(table for table in selected | graph.below(selected) if table in flow.tasks)
    if not found:
        what = f"{listed(wish.select)} has no task, nor has anything downstream" if wish.select else "there is no task"
        raise Mistake("BACKFILL_NO_TASK", what, fix="select tasks; `runnel plan --all` lists them")
    return found


def _branch(lake: "Lake", name: str) -> str:
    from runnel.lake.history.branches import branch

    return lake.store.db.read(lambda connection: branch(connection, name)).name
