"""Deliver to the sinks of a project: after a run or another commit, or on request."""

import secrets
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.errors import Mistake, RunnelError, did_you_mean
from runnel.model.secret_mask import SecretMask
from runnel.names import TableName
from runnel.run.results.run_result import Event, ProgressCallback, RunResult

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.client.lake_reader import LakeReader
    from runnel.declare.model.flow import Flow, Sink
    from runnel.declare.settings import Settings
    from runnel.lake.catalog.database import Database
    from runnel.lake.control.declarations import SinkDeclaration
    from runnel.lake.flow_state.sink_positions import SinkPosition
    from runnel.lake.work_runner import ChooseRunner
    from runnel.run.results.delivery_result import DeliveryResult


@dataclass(frozen=True)
class SinkState:
    """A sink and its delivery state: the last commit delivered, how many commits it is behind, its last failure."""

    sink: str
    table: str
    branch: str
    kind: str
    behind: int = 0
    commit: str | None = None
    rows: int | None = None
    at: str | None = None
    attempts: int = 0
    problem: str | None = None
    failing_since: str | None = None
    next_at: str | None = None

    @property
    def state(self) -> str:
        """Return failing, behind or current."""
        return "failing" if self.problem else "behind" if self.behind else "current"

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {**asdict(self), "state": self.state}


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


def deliver_now(
    lake: "Lake", name: str | None, watch: ProgressCallback | None = None, *, flow: "Flow | None" = None
) -> "tuple[DeliveryResult, ...]":
    """Deliver to one sink or to all, also if the target was removed. `flow` is the loaded project, if there is one."""
    from runnel.project.inspection.declarations import describe_sink
    from runnel.project.planning.plan_project import load_project_flow

    flow = flow or load_project_flow(lake)
    requested = find_sink([describe_sink(sink) for sink in flow.sinks], name).sink if name else None
    sinks = [sink for sink in flow.sinks if requested in (None, sink.name)]
    return _deliver_sinks(lake, flow, sinks, None, watch, looks=True)


def deliver_pending(
    lake: "Lake", flow: "Flow", branch: str, paused_sinks: Container[str] = ()
) -> "tuple[DeliveryResult, ...]":
    """Deliver the pending commits to the sinks of a branch that are not paused; each sink is tried once.

    `flow` is the loaded project.
    """
    if are_sinks_current(lake.settings, flow, branch):
        return ()
    sinks = [replace(sink, retries=0) for sink in flow.sinks if sink.branch == branch and sink.name not in paused_sinks]
    return _deliver_sinks(lake, flow, sinks, None, None)


def list_sink_states(lake: "LakeReader", declared_sinks: "Iterable[SinkDeclaration]") -> list[SinkState]:
    """Return the state of each declared sink, by name."""
    from runnel.lake.flow_state.sink_backlog import count_commits_behind
    from runnel.lake.flow_state.sink_positions import SinkPosition, read_positions

    all_states, positions = [], lake.store.db.read(read_positions)
    for declared in sorted(declared_sinks, key=lambda sink: sink.sink):
        position, commits_behind = positions.get(declared.sink, SinkPosition(declared.sink)), 0
        with suppress(RunnelError):  # the branch may not exist yet
            head, table = lake.store.commit(declared.branch), TableName.parse(declared.table)
            count_commits = partial(count_commits_behind, sink_position=position, head=head, table=table)
            commits_behind = lake.store.db.read(count_commits)
        all_states.append(_build_state(declared, position, commits_behind))
    return all_states


def load_declared_sinks(lake: "Lake") -> "list[SinkDeclaration]":
    """Load the project, and return the sinks that it declares."""
    from runnel.project.inspection.declarations import describe_sink
    from runnel.project.planning.plan_project import load_project_flow

    return [describe_sink(sink) for sink in load_project_flow(lake).sinks]


def reset_sink(db: "Database", declared_sinks: "Iterable[SinkDeclaration]", name: str) -> "SinkDeclaration":
    """Let a sink start from scratch, and return it."""
    from runnel.lake.flow_state.sink_positions import reset_position

    sink = find_sink(list(declared_sinks), name)
    reset_position(db, sink.sink)
    return sink


def _build_state(sink: "SinkDeclaration", position: "SinkPosition", commits_behind: int) -> SinkState:
    return SinkState(
        sink.sink,
        sink.table,
        sink.branch,
        sink.kind,
        commits_behind,
        position.delivered,
        position.rows,
        position.at,
        position.attempts,
        position.problem,
        position.failing_since,
        position.next_at,
    )


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

    mask = SecretMask(lake.settings.secrets)
    log = RunLog(Path(result.log).parent, result.run or "", mask) if result and result.log else None
    if log is None:
        log = RunLog(lake.settings.home / "logs", "sinks", mask)
    return deliver_to_sinks(
        lake.store,
        sinks,
        flow.root,
        watch or _ignore_event,
        log.write,
        choose_runner=build_runner_choice(lake),
        check_targets=looks,
    )


def build_runner_choice(lake: "Lake") -> "ChooseRunner | None":
    """Return what chooses where deliveries are made; None if only this process comes into question."""
    from runnel.project.work_places import create_work_context, read_work_place_rules

    if not read_work_place_rules(lake.settings).has_choice:
        return None
    return create_work_context(lake.settings, lake.spark_provider.get, f"sinks {secrets.token_hex(4)}").choose_runner


def find_sink(sinks: "Sequence[SinkDeclaration]", name: str) -> "SinkDeclaration":
    """Return the sink of a name, or the only sink of a table of that name."""
    for sink in sinks:
        if sink.sink == name:
            return sink
    sinks_of_table = [sink for sink in sinks if sink.table == name]
    if len(sinks_of_table) == 1:
        return sinks_of_table[0]
    what = f"several sinks are of `{name}`" if sinks_of_table else f"there is no sink `{name}`"
    raise Mistake(
        "SINK_UNKNOWN", what + did_you_mean(name, [sink.sink for sink in sinks]), fix="`runnel sinks` lists them"
    )


def _ignore_event(event: Event) -> None:
    """Ignore an event."""
