"""Merge with computing: tables that tasks make and that moved on both branches are computed into the merge's commit."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.errors import Cancelled, Mistake, listed
from runnel.lake.merge.merge import Finish, Merged, merge
from runnel.names import new_run_id
from runnel.project.execution.run_project import carry_out, hold
from runnel.project.planning.plan_project import Planned, flow_of, plan_state
from runnel.project.planning.run_request import Wish

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.lake.history.commits import Commit, State
    from runnel.lake.merge.merge_plan import MergePlan
    from runnel.run.results.run_result import Done, Ran, Watch
    from runnel.run.run_context import Work


def merge_and_run(
    lake: "Lake",
    source: str,
    into: str,
    *,
    message: str | None = None,
    watch: "Watch | None" = None,
    ran: "Callable[[Ran], None] | None" = None,
) -> Merged:
    """Merge a branch, computing what has to be computed with the project's code as it is now.

    `ran` is told what the computing did. Sources are not read.
    """
    flow = flow_of(lake)
    run, started_at = new_run_id(datetime.now(UTC)), datetime.now(UTC)

    def compute(plan: "MergePlan", state: "State", planned: int, finish: Finish) -> "Commit":
        found = _planned(lake, flow, plan, state)
        commits: list[Commit] = []

        def publish(work: "Work", steps: "tuple[Done, ...]") -> "Commit":
            from runnel.run.publish_run import changes_of

            commits.append(finish(changes_of(work, steps), work.loan.slot.lease if work.loan else None, run))
            return commits[-1]

        with hold(lake) as (pin, _):
            done = carry_out(lake, found, (pin, planned), run, started_at, None, watch, publish)
        if ran is not None:
            ran(done)
        if done.state == "cancelled":
            raise Cancelled
        if done.errors:
            raise done.errors[0]
        return commits[-1]

    return merge(lake.store, source, into, message, compute)


def _planned(lake: "Lake", flow: "Flow", plan: "MergePlan", state: "State") -> Planned:
    """Plan the tables that must be computed, and whatever is made from tables that the merge changes."""
    needed = [step.table for step in plan.having("compute")]
    unknown = [str(table) for table in needed if not flow.makes(table)]
    if unknown:
        what = f"{listed(unknown)} must be computed to merge, but no task of the project makes it any more"
        raise Mistake(
            "MERGE_TASK_UNKNOWN", what, fix="bring its flow file back, or drop the table on one of the branches"
        )
    from runnel.plan.graph import Graph

    changed = [
        step.table for step in plan.steps if step.changes and (step.table in flow.tasks or step.table in flow.sources)
    ]
    chosen = set(needed) | (Graph(flow).below(changed) if changed else set())
    names = tuple(sorted(str(table) for table in chosen if flow.makes(table)))
    return plan_state(lake, Wish(names, (), plan.into, reads_sources=False), flow, plan.target, state)
