"""Deliver to the sinks of a project: after a run or another commit, or on request."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.errors import Mistake, RunnelError, did_you_mean
from runnel.run.results.run_result import Event, ProgressCallback, RunResult

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow, Sink
    from runnel.declare.settings import Settings
    from runnel.lake.flow_state.sink_positions import SinkPosition
    from runnel.run.results.delivery_result import DeliveryResult


@dataclass(frozen=True)
class SinkState:
    """A sink, its delivery state, and how many commits it is behind."""

    sink: "Sink"
    delivered: "SinkPosition"
    behind: int

    @property
    def state(self) -> str:
        """Return failing, behind or current."""
        return "failing" if self.delivered.problem else "behind" if self.behind else "current"

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        delivered = self.delivered
        return {
            "sink": self.sink.name,
            "table": str(self.sink.table),
            "branch": self.sink.branch,
            "kind": type(self.sink.target).__name__.lower(),
            "state": self.state,
            "behind": self.behind,
            "commit": delivered.delivered,
            "rows": delivered.rows,
            "at": delivered.at,
            "attempts": delivered.attempts,
            "problem": delivered.problem,
            "failing_since": delivered.failing_since,
            "next_at": delivered.next_at,
        }


def deliver_after(lake: "Lake", flow: "Flow", result: RunResult, watch: ProgressCallback | None) -> RunResult:
    """Deliver what a run has published, and what earlier runs could not; return the result with the deliveries."""
    if result.state not in ("succeeded", "nothing"):
        return result
    sinks = [sink for sink in flow.sinks if sink.branch == result.branch]
    return replace(result, sinks=_deliver_sinks(lake, flow, sinks, result, watch)) if sinks else result


def deliver_after_commit(lake: "Lake", branch: str, watch: ProgressCallback | None) -> "tuple[DeliveryResult, ...]":
    """Deliver what a merge, a revert or a load has just changed on a branch; each sink is tried once.

    If no sink was ever delivered to, the project is not loaded: the first delivery is made by a run. Raises if the
    project can't be loaded.
    """
    from runnel.lake.flow_state.sink_positions import read_positions
    from runnel.project.planning.plan_project import load_project_flow

    if not lake.store.db.read(read_positions):
        return ()
    flow = load_project_flow(lake)
    sinks = [replace(sink, retries=0) for sink in flow.sinks if sink.branch == branch]
    return _deliver_sinks(lake, flow, sinks, None, watch)


def are_sinks_current(settings: "Settings", flow: "Flow", branch: str) -> bool:
    """Return, without importing SQLAlchemy, whether every sink of a branch is up to date; False if unclear."""
    from runnel.lake.sqlite_fast_path import SqliteBranchReader

    sinks = [sink for sink in flow.sinks if sink.branch == branch]
    if not sinks:
        return True
    glance = SqliteBranchReader.open(settings.catalog, settings.warehouse, branch)
    if glance is None:
        return False
    try:
        delivered = glance.read_delivered_contents()
        heads = ((sink.name, glance.heads.get(sink.table)) for sink in sinks)
        return all(delivered.get(name) == (head.content if head else None) for name, head in heads)
    finally:
        glance.close()


def deliver_now(lake: "Lake", name: str | None, watch: ProgressCallback | None) -> "tuple[DeliveryResult, ...]":
    """Deliver to one sink or to all, also if the target was removed."""
    from runnel.project.planning.plan_project import load_project_flow

    flow = load_project_flow(lake)
    sinks = [_find_sink(flow, name)] if name else flow.sinks
    return _deliver_sinks(lake, flow, sinks, None, watch, looks=True)


def deliver_pending(lake: "Lake", flow: "Flow", branch: str) -> "tuple[DeliveryResult, ...]":
    """Deliver the pending commits to the sinks of a branch; each sink is tried once. `flow` is the loaded project."""
    if are_sinks_current(lake.settings, flow, branch):
        return ()
    sinks = [replace(sink, retries=0) for sink in flow.sinks if sink.branch == branch]
    return _deliver_sinks(lake, flow, sinks, None, None)


def list_sink_states(lake: "Lake") -> list[SinkState]:
    """Return every sink of the project with its state."""
    from runnel.lake.flow_state.sink_backlog import count_commits_behind
    from runnel.lake.flow_state.sink_positions import SinkPosition, read_positions
    from runnel.project.planning.plan_project import load_project_flow

    all_states, delivered_by_sink = [], lake.store.db.read(read_positions)
    for sink in load_project_flow(lake).sinks:
        delivered = delivered_by_sink.get(sink.name, SinkPosition(sink.name))
        try:
            head = lake.store.commit(sink.branch)
        except RunnelError:
            all_states.append(SinkState(sink, delivered, 0))  # the branch does not exist yet
            continue
        count_commits = partial(count_commits_behind, sink_position=delivered, head=head, table=sink.table)
        commits_behind = lake.store.db.read(count_commits)
        all_states.append(SinkState(sink, delivered, commits_behind))
    return all_states


def reset_sink(lake: "Lake", name: str) -> "Sink":
    """Let a sink start from scratch, and return it."""
    from runnel.lake.flow_state.sink_positions import reset_position
    from runnel.project.planning.plan_project import load_project_flow

    sink = _find_sink(load_project_flow(lake), name)
    reset_position(lake.store.db, sink.name)
    return sink


def _deliver_sinks(
    lake: "Lake",
    flow: "Flow",
    sinks: "Sequence[Sink]",
    result: RunResult | None,
    watch: ProgressCallback | None,
    *,
    looks: bool = False,
) -> "tuple[DeliveryResult, ...]":
    from runnel.run.deliver import deliver_to_sinks
    from runnel.run.run_log import RunLog

    log = RunLog(Path(result.log).parent, result.run or "") if result and result.log else None
    if log is None:
        log = RunLog(lake.settings.home / "logs", "sinks")
    return deliver_to_sinks(lake.store, sinks, flow.root, watch or _ignore_event, log.write, check_targets=looks)


def _find_sink(flow: "Flow", name: str) -> "Sink":
    for sink in flow.sinks:
        if sink.name == name:
            return sink
    sinks_of_table = [sink for sink in flow.sinks if str(sink.table) == name]
    if len(sinks_of_table) == 1:
        return sinks_of_table[0]
    what = f"several sinks are of `{name}`" if sinks_of_table else f"there is no sink `{name}`"
    raise Mistake(
        "SINK_UNKNOWN", what + did_you_mean(name, [sink.name for sink in flow.sinks]), fix="`runnel sinks` lists them"
    )


def _ignore_event(event: Event) -> None:
    """Ignore an event."""
