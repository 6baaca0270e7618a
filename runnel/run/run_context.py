"""Define what all steps of one run share: the lake, the flow, the facts, Spark on demand, and progress reports."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from runnel.declare.model.flow import QUARANTINE_LAYER
from runnel.errors import Cancelled
from runnel.lake.history.commits import Commit, LakeState
from runnel.lake.leases import slots
from runnel.model.secret_mask import SecretMask
from runnel.model.table_version import TableVersion
from runnel.model.work_place import WorkPlaceRules
from runnel.names import TableName
from runnel.plan.facts import Facts
from runnel.run.results.run_result import Event, ProgressCallback
from runnel.run.step_threads import StepThreads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runnel.connect.feed.protocol import FeedChanges
    from runnel.connect.ingest.detect.file_changes import FileChanges
    from runnel.declare.model.flow import Flow, Task
    from runnel.lake.flow_state.ingest_position import ProcessedFile
    from runnel.lake.store import Store
    from runnel.lake.work_runner import ChooseRunner
    from runnel.model.date_range import DateRange
    from runnel.model.progress import Progress
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.run.checks.row_checks import CheckFinding
    from runnel.run.provenance.run_basis import RunBasis
    from runnel.run.run_log import RunLog
    from runnel.spark.slot_pool import SlotLease


class RunFacts(Facts, Protocol):
    """The facts that a run needs in addition to those of a plan."""

    def file_changes(self, table: TableName) -> "FileChanges | None":
        """Return the added, changed and removed files of a source; None for a source without files."""

    def feed_changes(self, table: TableName) -> "FeedChanges | None":
        """Return the changes of a source other than files; None for a file source."""

    def processed_files(self, table: TableName) -> "dict[str, ProcessedFile]":
        """Return what was already ingested from a source."""

    def position(self, table: TableName) -> "dict[str, ProcessedFile]":
        """Return everything that was ever ingested for a file source, by path, including removed files."""


@dataclass(frozen=True)
class RunSpec:
    """The specification of a run: on which branch, from which state of the lake, and how.

    `state` is the state of the branch at `commit`, or after a merge that is being computed. `pin` and
    `planned_sequence`, the lake's sequence number, were taken before the state was read: gc keeps its versions, and
    rows that are erased meanwhile don't come back.
    """

    run: str
    branch: str
    commit: Commit
    state: LakeState
    pin: str
    planned_sequence: int
    full_refresh: bool = False
    verify: bool = False  # compare every table with a full computation before publishing
    days: "DateRange | None" = None  # slices of these days are computed even if nothing changed
    parallel: int = 4
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    basis: "RunBasis | None" = None  # provenance in addition to the inputs
    claim: tuple[str, str] | None = None  # the queue entry of this run, and the token of its claim
    cancelled: threading.Event = field(default_factory=threading.Event)  # set to stop the run
    queued_seconds: float = 0.0  # how long it waited in the queue
    cause: str = "user"  # who requested it, such as `schedule/nightly`
    due: str | None = None  # the scheduled time that it is for
    trace: str | None = None  # the `traceparent` of its cause
    planned_at: datetime | None = None  # when its planning began; later than its start if it was planned again

    @property
    def mask(self) -> SecretMask:
        """Return what hides the project's secrets in the log and in errors."""
        return self.basis.mask if self.basis is not None else SecretMask()

    @property
    def scheduled_at(self) -> datetime | None:
        """Return the time for which a schedule queued the run, in UTC, or None."""
        return datetime.fromisoformat(self.due) if self.due is not None else None


@dataclass(frozen=True)
class RunResources:
    """What a run works with: the lake's store, the flow, the facts of its plan, and Spark on demand."""

    store: "Store"
    flow: "Flow"
    facts: RunFacts
    fingerprints: "Callable[[Task], Fingerprint]"
    spark: "Callable[[], SparkSession]"
    work_place_rules: WorkPlaceRules = field(default_factory=WorkPlaceRules)


class RunContext:
    """The state of a running run. The slot is acquired when the first step needs Spark, and released at the end."""

    def __init__(
        self, spec: RunSpec, resources: RunResources, report_progress: ProgressCallback, log: "RunLog"
    ) -> None:
        self.spec = spec
        self.store = resources.store
        self.flow = resources.flow
        self.facts = resources.facts
        self.fingerprints = resources.fingerprints
        self.report_progress = report_progress
        self.log = log
        self.cancelled = spec.cancelled
        self.findings: dict[TableName, tuple[CheckFinding, ...]] = {}  # of the checks of each table
        self.heads = dict(spec.state)
        self.step_threads = StepThreads()
        self._spark = resources.spark
        self._work_place_rules = resources.work_place_rules
        self._slot_lease: SlotLease | None = None
        self._guard = threading.Lock()
        self._stack = ExitStack()

    @property
    def root(self) -> Path:
        """Return the project's folder."""
        return self.flow.root

    @property
    def slot_lease(self) -> "SlotLease | None":
        """Return the lease of the slot, if Spark was needed."""
        return self._slot_lease

    def report_event(self, event: Event) -> None:
        """Write an event to the log and report it as progress, without secrets."""
        event = replace(event, text=self.spec.mask.hide(event.text))
        self.log.write_event(event)
        self.report_progress(event)

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the run was cancelled."""
        if self.cancelled.is_set():
            raise Cancelled

    def acquire_slot(self) -> "SlotLease":
        """Return the lease of the run's slot, acquired on first use with the current versions of the tables."""
        with self._guard:
            self.raise_if_cancelled()
            if self._slot_lease is None:
                from runnel.spark.slot_pool import get_slot_pool

                spark = self.get_spark()
                layers = {table.layer for table in self.flow.tasks} | {QUARANTINE_LAYER}
                lease_context = get_slot_pool(spark, self.store, "r", session_conf(spark)).acquire(
                    self.spec.commit, self._list_tables(), layers
                )
                self._slot_lease = self._stack.enter_context(lease_context)
            return self._slot_lease

    def get_spark(self) -> "SparkSession":
        """Return the session, started on first use; executors of a cluster get the code of the project."""
        from runnel.spark.executors.shipped_code import ship_project

        spark = self._spark()
        if self.spec.basis is not None:
            ship_project(spark.sparkContext, self.spec.basis.code.id, self.spec.basis.code.files)
        return spark

    @property
    def has_work_places(self) -> bool:
        """Tell whether work may be done in several places, so that a result should say where it was done."""
        return self._work_place_rules.has_cluster or self._work_place_rules.run_on != "auto"

    def choose_runner_of(self, table: TableName) -> "ChooseRunner":
        """Return what chooses where the step of a table reads or writes outside of Spark's own jobs."""
        from runnel.spark.executors.runner_choice import RunnerChoice

        return RunnerChoice(self._work_place_rules, self.get_spark, f"{self.spec.run} {table}")

    def interrupt(self, table: TableName) -> None:
        """Interrupt the step of a table, its Spark jobs and its Python code; call it again until the step ends."""
        if self._slot_lease is not None:
            with suppress(Exception):  # the JVM may be shutting down; then there is nothing to cancel
                self._slot_lease.session.sparkContext.cancelJobGroup(f"{self.spec.run} {table}")
        self.step_threads.interrupt(table)

    def make_read_reporter(self, table: TableName) -> "Progress":
        """Return a callback for the progress of reading a source; it raises if the run was cancelled."""

        def report_read(text: str, done: int, total: int | None) -> None:
            self.report_progress(Event("progress", text, table, "ingest", done, total))
            self.raise_if_cancelled()

        return report_read

    def place_tables(self, heads: "Mapping[TableName, TableVersion]") -> None:
        """Set the versions of tables for every step that reads them later."""
        with self._guard:
            self.heads.update(heads)
            if self._slot_lease is not None and heads:
                locations: dict[TableName, str | None] = {table: head.location for table, head in heads.items()}
                slots.place_tables(self.store.db, self._slot_lease.slot, locations)

    def close(self) -> None:
        """Release the slot."""
        self._stack.close()

    def _list_tables(self) -> LakeState:
        """Return the current version of every table that a task of the flow reads or writes."""
        needed_tables = {table for task in self.flow.tasks.values() for table in (*task.input_tables, task.table)}
        needed_tables |= {quarantine for task in self.flow.tasks.values() if (quarantine := task.quarantine_table)}
        needed_tables |= {table for task in self.flow.tasks.values() for table in task.referenced_tables}
        return {table: head for table, head in self.heads.items() if table in needed_tables}


def session_conf(spark: "SparkSession") -> dict[str, str]:
    """Return the settings of a run's session. Shuffles use a few partitions per core, unless the user set it."""
    chosen = spark.conf.get("spark.sql.shuffle.partitions", "200")
    partitions = max(8, 4 * spark.sparkContext.defaultParallelism)
    return {"spark.sql.shuffle.partitions": str(partitions) if chosen in (None, "200") else str(chosen)}
