"""What all steps of one run share: the lake, the flow, the facts, Spark when it is needed, and who watches."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from runnel.declare.model.flow import QUARANTINE
from runnel.errors import Cancelled
from runnel.lake.history.commits import Commit, State, Version
from runnel.lake.leases import slots
from runnel.names import TableName
from runnel.plan.facts import Facts, Head
from runnel.run.results.run_result import Event, Watch
from runnel.run.step_threads import StepThreads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.connect.feed.protocol import News, Progress
    from runnel.connect.ingest.detect.file_changes import Found
    from runnel.declare.model.flow import Flow, Task
    from runnel.lake.flow_state.ingest_position import Seen
    from runnel.lake.store import Store
    from runnel.plan.date_range import Days
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.run.checks.row_checks import Finding
    from runnel.run.provenance.run_basis import Basis
    from runnel.run.run_log import RunLog
    from runnel.spark.slot_pool import Loan


class RunFacts(Facts, Protocol):
    """What a run asks besides what a plan asks."""

    def found(self, table: TableName) -> "Found | None":
        """Return the files of a source that came, changed or went; None for a source without files."""

    def news(self, table: TableName) -> "News | None":
        """Return what a source that is no files has; None for one of files."""

    def seen(self, table: TableName) -> "dict[str, Seen]":
        """Return what a source has already given to its table."""

    def position(self, table: TableName) -> "dict[str, Seen]":
        """Return everything that was ever read for a table of files, by path, also what was removed."""


@dataclass(frozen=True)
class Order:
    """What is to be run: on which branch, from which state of the lake, and how.

    `state` is what the branch holds at `commit`, or what it would hold after a merge that is being computed. `pin` and
    `planned`, the lake's sequence, were taken before it was read: what it names is not swept, and rows that are erased
    meanwhile don't come back.
    """

    run: str
    branch: str
    commit: Commit
    state: State
    pin: str
    planned: int
    full_refresh: bool = False
    verify: bool = False  # compare every table with a full computation before publishing
    days: "Days | None" = None  # whose slices are computed although nothing changed
    parallel: int = 4
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    basis: "Basis | None" = None  # what its provenance says beside the inputs
    claim: tuple[str, str] | None = None  # the entry of the queue that this is, and the token of its claim
    cancelled: threading.Event = field(default_factory=threading.Event)  # set by whoever wants it to stop
    queued_seconds: float = 0.0  # how long it waited in the queue
    cause: str = "user"  # who wanted it: `schedule/nightly`, say
    due: str | None = None  # the time of a schedule that it is for
    trace: str | None = None  # the `traceparent` of what led to it
    planned_at: datetime | None = None  # when its planning began; later than its start where it was planned again


class Work:
    """The run while it goes on. Spark and its slot come when the first step asks for them, and go at the end."""

    def __init__(
        self,
        order: Order,
        store: "Store",
        flow: "Flow",
        facts: RunFacts,
        fingerprints: "Callable[[Task], Fingerprint]",
        spark: "Callable[[], SparkSession]",
        watch: Watch,
        log: "RunLog",
    ) -> None:
        self.order = order
        self.store = store
        self.flow = flow
        self.facts = facts
        self.fingerprints = fingerprints
        self.watch = watch
        self.log = log
        self.cancelled = order.cancelled
        self.findings: dict[TableName, tuple[Finding, ...]] = {}  # how the checks of each table went
        self.heads = {table: Head(version.location, version.content) for table, version in order.state.items()}
        self.steps = StepThreads()
        self._spark = spark
        self._loan: Loan | None = None
        self._guard = threading.Lock()
        self._stack = ExitStack()

    @property
    def root(self) -> Path:
        """Return the project's folder."""
        return self.flow.root

    @property
    def loan(self) -> "Loan | None":
        """Return the slot, if Spark was needed."""
        return self._loan

    def tell(self, event: Event) -> None:
        """Tell whoever watches, and the log."""
        self.log.event(event)
        self.watch(event)

    def check(self) -> None:
        """Raise where the run was cancelled."""
        if self.cancelled.is_set():
            raise Cancelled

    def borrow(self) -> "Loan":
        """Return the run's slot, taken on first use with the tables as they are by then."""
        with self._guard:
            self.check()
            if self._loan is None:
                from runnel.spark.slot_pool import lender

                spark = self._spark()
                layers = {table.layer for table in self.flow.tasks} | {QUARANTINE}
                lent = lender(spark, self.store, "r", session_conf(spark)).lend(
                    self.order.commit, self._tables(), layers
                )
                self._loan = self._stack.enter_context(lent)
            return self._loan

    def interrupt(self, table: TableName) -> None:
        """Stop what the step of a table does now, jobs of Spark and Python code alike; to be called again and again."""
        if self._loan is not None:
            with suppress(Exception):  # the JVM may be ending; there is nothing left to cancel then
                self._loan.session.sparkContext.cancelJobGroup(f"{self.order.run} {table}")
        self.steps.interrupt(table)

    def reading(self, table: TableName) -> "Progress":
        """Return what is told how far the reading of a source is; it raises where the run was cancelled."""

        def tell(what: str, done: int, total: int | None) -> None:
            self.watch(Event("progress", what, table, "ingest", done, total))
            self.check()

        return tell

    def place(self, heads: "Mapping[TableName, Head]") -> None:
        """Let the tables of the run be at these versions, for every step that reads them later."""
        with self._guard:
            self.heads.update(heads)
            if self._loan is not None and heads:
                locations: dict[TableName, str | None] = {table: head.location for table, head in heads.items()}
                slots.place(self.store.db, self._loan.slot, locations)

    def close(self) -> None:
        """Give the slot back."""
        self._stack.close()

    def _tables(self) -> State:
        """Return every table that a task of the flow reads or writes, as it is now."""
        wanted = {table for task in self.flow.tasks.values() for table in (*task.reads, task.table)}
        wanted |= {aside for task in self.flow.tasks.values() if (aside := task.quarantine)}
        wanted |= {table for task in self.flow.tasks.values() for table in task.refers}
        return {table: Version(h.location, h.content) for table, h in self.heads.items() if table in wanted}


def session_conf(spark: "SparkSession") -> dict[str, str]:
    """Return the settings of a run's session. Shuffles start with a few partitions per core, unless the user chose."""
    chosen = spark.conf.get("spark.sql.shuffle.partitions", "200")
    few = max(8, 4 * spark.sparkContext.defaultParallelism)
    return {"spark.sql.shuffle.partitions": str(few) if chosen in (None, "200") else str(chosen)}
