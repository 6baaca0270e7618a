"""Deliver published commits to sinks: in order, at least once, each sink independently.

A failing sink neither fails a run nor blocks the lake: its error is recorded and reported, and the next run retries.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from runnel.backoff import FailedAttempt, call_with_backoff, doubling_pauses, sleep_after
from runnel.errors import CorruptData, RunnelError, Unreachable
from runnel.lake.flow_state.sink_backlog import DeliveryStep, move_position, plan_delivery_steps
from runnel.lake.flow_state.sink_positions import SinkLease, SinkPosition, lease_sink, read_positions, update_location
from runnel.lake.history.branches import list_branches
from runnel.lake.history.commits import Commit, find_commit, find_version
from runnel.lake.leases.pins import acquire_pin
from runnel.model.table_version import TableVersion
from runnel.model.work_place import EXECUTORS
from runnel.run.errors.task_errors import format_full_trace
from runnel.run.results.delivery_result import DeliveryResult, DeliveryState
from runnel.run.results.run_result import Event, ProgressCallback

if TYPE_CHECKING:
    from runnel.connect.sinks.sink_target import DeliveredRows, SinkTarget
    from runnel.connect.sinks.table_change import DeliveryWork
    from runnel.declare.model.flow import Sink
    from runnel.lake.store import Store
    from runnel.lake.work_runner import ChooseRunner
    from runnel.model.work_place import WorkPlace

FIRST_PAUSE_SECONDS = 0.5
_FROM_SCRATCH_WARNING = (
    "the version that was delivered last is gone, so all rows were delivered again; "
    "rows that were removed in the meantime may remain in the target"
)
Log = Callable[[str], None]


def deliver_to_sinks(
    store: "Store",
    sinks: "Iterable[Sink]",
    root: Path,
    report_progress: ProgressCallback,
    log: Log,
    *,
    choose_runner: "ChooseRunner | None" = None,
    check_targets: bool = False,
) -> tuple[DeliveryResult, ...]:
    """Deliver to each sink what it lacks, and return the results of the sinks that lacked something.

    `choose_runner` says where rows are read and sent; None: in this process. With `check_targets` Runnel also connects
    to the targets of sinks that are up to date.
    """
    results: list[DeliveryResult] = []
    for sink in sinks:
        started = time.monotonic()
        delivery = _SinkDelivery(store, sink, root, _DeliveryReports(report_progress, log), choose_runner)
        try:
            result = delivery.deliver(check_target=check_targets)
        except KeyboardInterrupt:
            error = RunnelError("SINK_INTERRUPTED", f"the delivery to `{sink.name}` was stopped", fix="run again")
            return (*results, delivery.build_result("failed", error))
        except Exception as error:
            result = delivery.build_failure(error)
        if result.state != "current":
            results.append(replace(result, seconds=time.monotonic() - started))
            report_progress(Event("end", table=sink.table))
    return tuple(results)


@dataclass(frozen=True)
class _DeliveryReports:
    """Where a delivery reports its progress, and writes what happened."""

    report_progress: ProgressCallback
    log: Log


class _SinkDelivery:
    """Deliver to one sink what it lacks."""

    def __init__(
        self,
        store: "Store",
        sink: "Sink",
        root: Path,
        reports: _DeliveryReports,
        choose_runner: "ChooseRunner | None" = None,
    ) -> None:
        self._store = store
        self._sink = sink
        self._root = root
        self._report_progress = reports.report_progress
        self._log = reports.log
        self._choose_runner = choose_runner
        self._place: WorkPlace | None = None
        self._rows = 0
        self._commits = 0
        self._from_scratch = False  # whether everything is delivered again
        self._warning: str | None = None

    def deliver(self, *, check_target: bool) -> DeliveryResult:
        """Deliver; an error is recorded in the state of the sink."""
        if self._sink.branch not in [branch.name for branch in self._store.db.read(list_branches)]:
            return self.build_result("current")  # there is nothing to deliver yet
        head = self._store.commit(self._sink.branch)
        position = self._store.db.read(read_positions).get(self._sink.name, SinkPosition(self._sink.name))
        if not self._list_steps(position, head):
            self._follow_rewritten_version(position, head)
            if not check_target:
                return self.build_result("current")
        with lease_sink(self._store.db, self._sink.name) as claim:
            if claim is None:
                return self.build_result("held")
            try:
                self._deliver_with_retries(claim, head)
            except Exception as error:
                failed = self.build_failure(error)
                claim.record_failure(str(failed.error))
                return failed
        return self.build_result("delivered" if self._commits else "current")

    def build_result(self, state: DeliveryState, error: RunnelError | None = None) -> DeliveryResult:
        """Return the result so far."""
        if state != "current":
            self._log(f"sink {self._sink.name} {state}, {self._rows} rows of {self._commits} commits")
        name, table = self._sink.name, str(self._sink.table)
        return DeliveryResult(
            name, table, state, self._rows, self._commits, error=error, warning=self._warning, place=self._place
        )

    def build_failure(self, error: Exception) -> DeliveryResult:
        """Return a failed result; the full trace goes to the log."""
        self._log(f"trace of sink {self._sink.name}\n{format_full_trace(error)}")
        if isinstance(error, RunnelError):
            return self.build_result("failed", error)
        text = str(error).splitlines()[0] if str(error) else ""
        what = f"the sink `{self._sink.name}` failed: {type(error).__name__}: {text}"
        fix = "the log of the run has the full trace; the next run continues"
        return self.build_result("failed", RunnelError("SINK_FAILED", what, at=str(self._sink.place), fix=fix))

    def _deliver_with_retries(self, claim: SinkLease, head: Commit) -> None:
        """Deliver; retry transient errors a few times, for seconds only."""
        next_at, now = claim.read_position().next_at, self._store.db.read(self._store.db.now)
        # A sink that failed recently is tried once, so that runs don't wait for it again and again.
        retries = 0 if next_at is not None and now < next_at else self._sink.retries

        def wait(failed_attempt: FailedAttempt[Unreachable]) -> None:
            text = f"{failed_attempt.error.what}; retrying in {failed_attempt.pause_seconds:.1f} s"
            self._report_event("retry", text)
            sleep_after(failed_attempt)

        call_with_backoff(
            lambda: self._deliver_or_start_over(claim, head),
            Unreachable,
            doubling_pauses(FIRST_PAUSE_SECONDS),
            attempts=retries + 1,
            wait=wait,
        )

    def _deliver_or_start_over(self, claim: SinkLease, head: Commit) -> None:
        """Deliver to the head; from scratch if the version that the sink has can't be read.

        Any other unreadable file fails the delivery: rows that are delivered again may be there twice.
        """
        try:
            self._deliver_to_head(claim, head)
            return
        except CorruptData:
            from runnel.lake.scan.version_check import can_read_version

            location = claim.read_position().location
            if self._from_scratch or (location is not None and can_read_version(self._store, location)):
                raise
        self._from_scratch, self._warning = True, _FROM_SCRATCH_WARNING
        self._deliver_to_head(claim, head)

    def _deliver_to_head(self, claim: SinkLease, head: Commit) -> None:
        """Deliver from the position of the sink to the head; from scratch if its version was removed."""
        from runnel.connect.sinks.sink_target import build_sink_target

        recorded = claim.read_position()
        with build_sink_target(self._sink, self._root, recorded.epoch, self._store.storage) as target:
            target_commit = target.delivered_commit(recorded.delivered)
            position = recorded if target_commit == recorded.delivered else self._move_position(recorded, target_commit)
            if self._from_scratch:
                position = self._move_position(position, None)
            for step in self._list_steps(position, head):
                self._deliver_step(claim, target, step, position.epoch)
            if not self._commits and target_commit is not None and target_commit != recorded.delivered:
                self._record_position(claim, position)

    def _deliver_step(self, claim: SinkLease, target: "SinkTarget", step: DeliveryStep, epoch: int) -> None:
        from runnel.connect.sinks import failpoints
        from runnel.connect.sinks.table_change import open_change

        key = f"{self._sink.name}/{step.commit.id}"
        key += f"/anew-{epoch}" if self._from_scratch else f"/{epoch}" if epoch else ""
        if step.is_full:
            claim.record_start(step.commit)
        self._report_event("start", "everything" if step.is_full else f"what commit {step.commit.id[:8]} changed")
        with (
            acquire_pin(self._store.db, "read", step.commit.id),
            open_change(self._store, self._sink.table, step, key, self._report_rows, work=self._build_work()) as change,
        ):
            delivered = target.deliver(change)
        failpoints.reach(failpoints.ACCEPTED)
        claim.record_delivery(step.commit, step.after, delivered.count, epoch)
        self._note_delivery(delivered)

    def _note_delivery(self, delivered: "DeliveredRows") -> None:
        """Count what a sink accepted; the place of several steps is that of the last one on executors."""
        self._rows += delivered.count
        self._commits += 1
        if delivered.place is not None:
            self._log(f"sink {self._sink.name} was written {delivered.place.describe()}")
            if self._place is None or delivered.place.name == EXECUTORS or self._place.name != EXECUTORS:
                self._place = delivered.place

    def _build_work(self) -> "DeliveryWork | None":
        from runnel.connect.sinks.table_change import DeliveryWork

        return DeliveryWork(self._choose_runner, self._report_units) if self._choose_runner is not None else None

    def _record_position(self, claim: SinkLease, position: SinkPosition) -> None:
        """Record the position that the target reports: a process was killed before it could record it."""
        commit = self._store.db.read(lambda connection: find_commit(connection, position.delivered or ""))
        if commit is not None:
            version = TableVersion(position.location, position.content or "") if position.location else None
            claim.record_delivery(commit, version, 0, position.epoch)
            self._commits += 1

    def _follow_rewritten_version(self, position: SinkPosition, head: Commit) -> None:
        newest = self._store.db.read(lambda connection: find_version(connection, head, self._sink.table))
        if newest is not None and position.location is not None and newest.location != position.location:
            update_location(self._store.db, self._sink.name, newest)

    def _list_steps(self, position: SinkPosition, head: Commit) -> tuple[DeliveryStep, ...]:
        table, each_commit = self._sink.table, self._sink.needs_each_commit
        return self._store.db.read(
            lambda connection: plan_delivery_steps(connection, position, head, table, each_commit=each_commit)
        )

    def _move_position(self, position: SinkPosition, commit_id: str | None) -> SinkPosition:
        return self._store.db.read(lambda connection: move_position(connection, position, commit_id, self._sink.table))

    def _report_rows(self, done: int, total: int) -> None:
        self._report_progress(Event("progress", "", self._sink.table, f"to {self._sink.name}", done, total))

    def _report_units(self, done: int, total: int) -> None:
        event = Event("progress", "on executors", self._sink.table, f"to {self._sink.name}", done, total)
        self._report_progress(event)

    def _report_event(self, kind: Literal["retry", "start"], text: str) -> None:
        self._log(f"sink {self._sink.name}: {text}")
        self._report_progress(Event(kind, text, self._sink.table, f"to {self._sink.name}"))
