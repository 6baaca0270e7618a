"""Deliver to the sinks of a project: after a run or a commit by hand, or because someone asks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.errors import Mistake, RunnelError, nearest
from runnel.run.results.run_result import Event, Ran, Watch

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow, Sink
    from runnel.declare.settings import Settings
    from runnel.lake.flow_state.sink_positions import Delivered
    from runnel.run.results.delivery_result import Sent


@dataclass(frozen=True)
class SinkState:
    """A sink, how far it has come, and how many commits it lacks."""

    sink: "Sink"
    delivered: "Delivered"
    behind: int

    @property
    def state(self) -> str:
        """Return one word: failing, behind or current."""
        return "failing" if self.delivered.problem else "behind" if self.behind else "current"

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        done = self.delivered
        return {
            "sink": self.sink.name,
            "table": str(self.sink.table),
            "branch": self.sink.branch,
            "kind": type(self.sink.target).__name__.lower(),
            "state": self.state,
            "behind": self.behind,
            "commit": done.delivered,
            "rows": done.rows,
            "at": done.at,
            "attempts": done.attempts,
            "problem": done.problem,
            "failing_since": done.failing_since,
            "next_at": done.next_at,
        }


def deliver_after(lake: "Lake", flow: "Flow", ran: Ran, watch: Watch | None) -> Ran:
    """Deliver what a run has published, and what earlier ones could not; return the run with what became of it."""
    if ran.state not in ("succeeded", "nothing"):
        return ran
    sinks = [sink for sink in flow.sinks if sink.branch == ran.branch]
    return replace(ran, sinks=_deliver(lake, flow, sinks, ran, watch)) if sinks else ran


def deliver_by_hand(lake: "Lake", branch: str, watch: Watch | None) -> "tuple[Sent, ...]":
    """Deliver what a merge, a revert or a load has just made of a branch; each sink is tried once.

    Where no sink was ever tried the project is not loaded: a run is what begins. Raises where it can't be loaded.
    """
    from runnel.lake.flow_state.sink_positions import states
    from runnel.project.planning.plan_project import flow_of

    if not lake.store.db.read(states):
        return ()
    flow = flow_of(lake)
    sinks = [replace(sink, retries=0) for sink in flow.sinks if sink.branch == branch]
    return _deliver(lake, flow, sinks, None, watch)


def is_nothing_behind(settings: "Settings", flow: "Flow", branch: str) -> bool:
    """Tell, without the database's library, whether every sink of a branch has everything; False where unclear."""
    from runnel.lake.sqlite_fast_path import Glance

    sinks = [sink for sink in flow.sinks if sink.branch == branch]
    if not sinks:
        return True
    glance = Glance.open(settings.catalog, settings.warehouse, branch)
    if glance is None:
        return False
    try:
        done = glance.delivered()
        heads = ((sink.name, glance.heads.get(sink.table)) for sink in sinks)
        return all(done.get(name) == (head.content if head else None) for name, head in heads)
    finally:
        glance.close()


def deliver_now(lake: "Lake", name: str | None, watch: Watch | None) -> "tuple[Sent, ...]":
    """Deliver to one sink or to all, also where the target was removed."""
    from runnel.project.planning.plan_project import flow_of

    flow = flow_of(lake)
    sinks = [_named(flow, name)] if name else flow.sinks
    return _deliver(lake, flow, sinks, None, watch, looks=True)


def deliver_on(lake: "Lake", flow: "Flow", branch: str) -> "tuple[Sent, ...]":
    """Deliver what the sinks of a branch lack; each is tried once. `flow` is what the project declares."""
    if is_nothing_behind(lake.settings, flow, branch):
        return ()
    sinks = [replace(sink, retries=0) for sink in flow.sinks if sink.branch == branch]
    return _deliver(lake, flow, sinks, None, None)


def sink_states(lake: "Lake") -> list[SinkState]:
    """Return every sink of the project with its state."""
    from runnel.lake.flow_state.sink_backlog import behind
    from runnel.lake.flow_state.sink_positions import Delivered, states
    from runnel.project.planning.plan_project import flow_of

    found, known = [], lake.store.db.read(states)
    for sink in flow_of(lake).sinks:
        done = known.get(sink.name, Delivered(sink.name))
        try:
            head = lake.store.commit(sink.branch)
        except RunnelError:
            found.append(SinkState(sink, done, 0))  # the branch is not there yet
            continue
        number = lake.store.db.read(lambda c, at=(done, head, sink.table): behind(c, *at))  # type: ignore[misc]
        found.append(SinkState(sink, done, number))
    return found


def reset_sink(lake: "Lake", name: str) -> "Sink":
    """Let a sink begin anew, and return it."""
    from runnel.lake.flow_state.sink_positions import reset
    from runnel.project.planning.plan_project import flow_of

    sink = _named(flow_of(lake), name)
    reset(lake.store.db, sink.name)
    return sink


def _deliver(
    lake: "Lake", flow: "Flow", sinks: "Sequence[Sink]", ran: Ran | None, watch: Watch | None, *, looks: bool = False
) -> "tuple[Sent, ...]":
    from runnel.run.deliver import deliver_all
    from runnel.run.run_log import RunLog

    log = RunLog(Path(ran.log).parent, ran.run or "") if ran and ran.log else None
    if log is None:
        log = RunLog(lake.settings.home / "logs", "sinks")
    return deliver_all(lake.store, sinks, flow.root, watch or _silent, log.write, looks=looks)


def _named(flow: "Flow", name: str) -> "Sink":
    for sink in flow.sinks:
        if sink.name == name:
            return sink
    of_table = [sink for sink in flow.sinks if str(sink.table) == name]
    if len(of_table) == 1:
        return of_table[0]
    close = nearest(name, [sink.name for sink in flow.sinks])
    what = f"several sinks are of `{name}`" if of_table else f"there is no sink `{name}`"
    raise Mistake("SINK_UNKNOWN", what + (f"; close: `{close}`" if close else ""), fix="`runnel sinks` lists them")


def _silent(event: Event) -> None:
    """Watch nothing."""
