"""Deliver what was published to sinks: in the order of commits, at least once, each sink by itself.

Nothing that a sink does fails a run or blocks the lake: what is wrong is kept, told, and tried again by the next run.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from runnel.errors import Broken, RunnelError, Unreachable
from runnel.lake.flow_state.sink_backlog import Step, moved, steps
from runnel.lake.flow_state.sink_positions import Delivered, Hold, follow, held, states
from runnel.lake.history.branches import branches
from runnel.lake.history.commits import Commit, Version, find, version_at
from runnel.lake.leases.pins import pinned
from runnel.run.errors.task_errors import full_trace
from runnel.run.results.delivery_result import Sent, State
from runnel.run.results.run_result import Event, Watch

if TYPE_CHECKING:
    from runnel.connect.sinks.sink_target import Outlet
    from runnel.declare.model.flow import Sink
    from runnel.lake.store import Store

_PAUSE_SECONDS = 0.5
_ANEW = "the version that it had is gone, so everything was delivered again; rows that went meanwhile may remain there"
Log = Callable[[str], None]


def deliver_all(
    store: "Store", sinks: "Iterable[Sink]", root: Path, watch: Watch, log: Log, *, looks: bool = False
) -> tuple[Sent, ...]:
    """Deliver to each sink what it lacks, and return what became of those that lacked something.

    With `looks` a sink that has everything is still asked whether its target is there.
    """
    found: list[Sent] = []
    for sink in sinks:
        started, delivery = time.monotonic(), _Delivery(store, sink, root, watch, log)
        try:
            sent = delivery.run(looks=looks)
        except KeyboardInterrupt:
            error = RunnelError("SINK_INTERRUPTED", f"the delivery to `{sink.name}` was stopped", fix="run again")
            return (*found, delivery.sent("failed", error))
        except Exception as error:
            sent = delivery.failed(error)
        if sent.state != "current":
            found.append(replace(sent, seconds=time.monotonic() - started))
            watch(Event("end", table=sink.table))
    return tuple(found)


class _Delivery:
    """One pass over what a sink lacks."""

    def __init__(self, store: "Store", sink: "Sink", root: Path, watch: Watch, log: Log) -> None:
        self._store = store
        self._sink = sink
        self._root = root
        self._watch = watch
        self._log = log
        self._rows = 0
        self._commits = 0
        self._warning: str | None = None

    def run(self, *, looks: bool) -> Sent:
        """Deliver; whatever the sink does wrong is kept in its state."""
        if self._sink.branch not in [branch.name for branch in self._store.db.read(branches)]:
            return self.sent("current")  # there is nothing to deliver yet
        head = self._store.commit(self._sink.branch)
        known = self._store.db.read(states).get(self._sink.name, Delivered(self._sink.name))
        if not self._steps(known, head):
            self._settle(known, head)
            if not looks:
                return self.sent("current")
        with held(self._store.db, self._sink.name) as hold:
            if hold is None:
                return self.sent("held")
            try:
                self._patiently(hold, head)
            except Exception as error:
                failed = self.failed(error)
                hold.fail(str(failed.error))
                return failed
        return self.sent("delivered" if self._commits else "current")

    def sent(self, state: State, error: RunnelError | None = None) -> Sent:
        """Return what became of it so far."""
        if state != "current":
            self._log(f"sink {self._sink.name} {state}, {self._rows} rows of {self._commits} commits")
        name, table = self._sink.name, str(self._sink.table)
        return Sent(name, table, state, self._rows, self._commits, error=error, warning=self._warning)

    def failed(self, error: Exception) -> Sent:
        """Return that it failed; the whole trace goes to the log."""
        self._log(f"trace of sink {self._sink.name}\n{full_trace(error)}")
        if isinstance(error, RunnelError):
            return self.sent("failed", error)
        text = str(error).splitlines()[0] if str(error) else ""
        what = f"the sink `{self._sink.name}` failed: {type(error).__name__}: {text}"
        fix = "the log of the run has the whole trace; the next run goes on"
        return self.sent("failed", RunnelError("SINK_FAILED", what, at=str(self._sink.place), fix=fix))

    def _patiently(self, hold: Hold, head: Commit) -> None:
        """Deliver; what may pass is tried again, a few times and for seconds only."""
        next_at, now = hold.state().next_at, self._store.db.read(self._store.db.now)
        # A sink that has failed of late is tried once: a run does not wait for it again and again.
        left = 0 if next_at is not None and now < next_at else self._sink.retries
        is_anew, pause = False, _PAUSE_SECONDS
        while True:
            try:
                self._follow(hold, head, is_anew=is_anew)
            except Broken:
                if is_anew:
                    raise
                is_anew, self._warning = True, _ANEW
            except Unreachable as error:
                if left <= 0:
                    raise
                left -= 1
                self._tell("retry", f"{error.what}; again in {pause:.1f} s")
                time.sleep(pause)
                pause *= 2
            else:
                return

    def _follow(self, hold: Hold, head: Commit, *, is_anew: bool) -> None:
        """Deliver from where the sink is to the head; anew where the version that it had is gone."""
        from runnel.connect.sinks.sink_target import outlet_of

        recorded = hold.state()
        with outlet_of(self._sink, self._root, recorded.epoch, self._store.storage) as outlet:
            has = outlet.position(recorded.delivered)
            done = recorded if has == recorded.delivered else self._moved(recorded, has)
            if is_anew:
                done = self._moved(done, None)
            for step in self._steps(done, head):
                self._take(hold, outlet, step, done.epoch, is_anew=is_anew)
            if not self._commits and has is not None and has != recorded.delivered:
                self._record(hold, done)

    def _take(self, hold: Hold, outlet: "Outlet", step: Step, epoch: int, *, is_anew: bool) -> None:
        from runnel.connect.sinks import failpoints
        from runnel.connect.sinks.table_change import opened

        key = f"{self._sink.name}/{step.commit.id}"
        key += f"/anew-{epoch}" if is_anew else f"/{epoch}" if epoch else ""
        if step.is_whole:
            hold.begin(step.commit)
        self._tell("start", "everything" if step.is_whole else f"what commit {step.commit.id[:8]} changed")
        with (
            pinned(self._store.db, "read", step.commit.id),
            opened(self._store, self._sink.table, step, key, self._progress) as change,
        ):
            rows = outlet.take(change)
        failpoints.reach(failpoints.ACCEPTED)
        hold.accept(step.commit, step.after, rows, epoch)
        self._rows += rows
        self._commits += 1

    def _record(self, hold: Hold, done: Delivered) -> None:
        """Note what the target itself says that it has: a process was killed before it could."""
        commit = self._store.db.read(lambda connection: find(connection, done.delivered or ""))
        if commit is not None:
            version = Version(done.location, done.content or "") if done.location else None
            hold.accept(commit, version, 0, done.epoch)
            self._commits += 1

    def _settle(self, done: Delivered, head: Commit) -> None:
        newest = self._store.db.read(lambda connection: version_at(connection, head, self._sink.table))
        if newest is not None and done.location is not None and newest.location != done.location:
            follow(self._store.db, self._sink.name, newest)

    def _steps(self, done: Delivered, head: Commit) -> tuple[Step, ...]:
        table, each = self._sink.table, self._sink.takes_commits
        return self._store.db.read(lambda connection: steps(connection, done, head, table, each=each))

    def _moved(self, done: Delivered, commit_id: str | None) -> Delivered:
        return self._store.db.read(lambda connection: moved(connection, done, commit_id, self._sink.table))

    def _progress(self, done: int, total: int) -> None:
        self._watch(Event("progress", "", self._sink.table, f"to {self._sink.name}", done, total))

    def _tell(self, kind: Literal["retry", "start"], text: str) -> None:
        self._log(f"sink {self._sink.name}: {text}")
        self._watch(Event(kind, text, self._sink.table, f"to {self._sink.name}"))
