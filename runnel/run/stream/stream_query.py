"""Run one stream: extend its append logs, let Spark read them, and publish each batch."""

import json
import threading
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.declare.model.flow import QUARANTINE_LAYER
from runnel.errors import Mistake, join_names
from runnel.lake.flow_state import streams
from runnel.lake.leases import slots
from runnel.model.table_version import TableVersion
from runnel.plan.missing_inputs import refuse_missing
from runnel.run.errors.stream_errors import raise_stream_errors, refuse_computed_stream
from runnel.run.stream import failpoints
from runnel.run.stream.batch_metrics import BatchMetricsRecorder
from runnel.run.stream.batch_publisher import BatchPublisher
from runnel.run.stream.stream_inputs import (
    LAYER,
    extend_append_logs,
    list_log_versions,
    list_streamed_tables,
    name_append_log,
    parse_offsets,
    read_committed_offsets,
)
from runnel.run.stream.watermarks import add_watermarks, describe_left_out_rows
from runnel.run.task.build_frame import build_frame
from runnel.run.task_context import TaskContext

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from runnel.declare.model.flow import Flow, Task
    from runnel.lake.flow_state.append_log import AppendLog
    from runnel.lake.flow_state.streams import StreamLease
    from runnel.lake.history.commits import LakeState
    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.run.stream.batch_publisher import BatchObserver
    from runnel.spark.slot_pool import SlotLease

_CONF = {"spark.sql.streaming.pollingDelay": "20ms", "spark.sql.streaming.stopTimeout": "60s"}
_OPTIONS = {"streaming-skip-delete-snapshots": "true", "streaming-max-rows-per-micro-batch": "2000000"}
_WAITING, _PAUSING = "Waiting for data to arrive", "Waiting for next trigger"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class StreamSpec:
    """The specification of a stream: its task, the code of the task, the branch, and the run of its commits."""

    flow: "Flow"
    task: "Task"
    branch: str
    code: "Fingerprint"
    run: str


@dataclass
class StreamQuery:
    """A stream that this process runs on a branch. Open it, start it, then extend its logs or wait for its end.

    `lookup_tables` are read at their current version. Spark resolves them again for each batch, one by one, so their
    versions are only changed while it does not: after a batch, or while it is idle.
    """

    store: "Store"
    flow: "Flow"
    task: "Task"
    branch: str
    code: "Fingerprint"
    claim: "StreamLease"
    slot_lease: "SlotLease"
    append_logs: "dict[TableName, AppendLog]"
    lookup_tables: "dict[TableName, TableVersion]"
    context: TaskContext
    state_provider: str  # Spark's default state store provider
    observers: "InitVar[Sequence[BatchObserver]]" = ()
    streaming_query: "StreamingQuery | None" = None
    is_behind: bool = False  # its append logs could not take all rows yet
    publisher: BatchPublisher = field(init=False)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self, observers: "Sequence[BatchObserver]") -> None:
        """Create the publisher. After a batch it first refreshes the lookup tables, then calls `observers`."""
        self.publisher = BatchPublisher(
            self.context,
            self.task,
            self.branch,
            self.claim,
            self.code,
            observers=(lambda _: self.refresh_lookup_tables(), *observers),
        )
        self._update_inputs()

    @classmethod
    def open(
        cls,
        stack: "ExitStack",
        store: "Store",
        spec: StreamSpec,
        spark: "SparkSession",
        observers: "Sequence[BatchObserver]" = (),
    ) -> "StreamQuery":
        """Claim a stream, extend its append logs to the current state, and lease a slot; `stack` releases all that.

        `observers` are called after each batch, in their order, once the lookup tables are refreshed.
        """
        from runnel.spark.slot_pool import get_slot_pool

        flow, task, branch, code = spec.flow, spec.task, spec.branch, spec.code
        commit = store.commit(branch)
        state = store.state(commit)
        refuse_missing(task, [table for table in task.input_tables if table not in state])
        if task.table not in state:
            streams.reset(store.db, branch, task.table)  # its output was removed, so it starts from scratch
        stack.callback(streams.delete_unstarted, store.db, branch, task.table)
        claim = stack.enter_context(streams.acquire_lease(store.db, branch, task.table, code.digest))
        append_logs = _extend_logs_to_state(store, task, claim, state)
        lookup_tables = _find_lookup_tables(task, state)
        slot_pool = get_slot_pool(spark, store, "s", _build_session_conf(spark))
        layers = {task.table.layer, QUARANTINE_LAYER, LAYER}
        slot_lease = stack.enter_context(
            slot_pool.acquire(commit, {**lookup_tables, **list_log_versions(append_logs)}, layers)
        )
        stream_query = cls(
            store,
            flow,
            task,
            branch,
            code,
            claim,
            slot_lease,
            append_logs,
            lookup_tables,
            context=TaskContext(store, slot_lease.slot, slot_lease.session, spec.run, datetime.now(UTC)),
            state_provider=spark.conf.get(_PROVIDER) or "",
            observers=observers,
            is_behind=any(append_logs[table].reached != state[table].location for table in append_logs),
        )
        stack.callback(stream_query.halt)
        return stream_query

    def start(self, *, is_endless: bool) -> "StreamingQuery":
        """Start the query in Spark: to the end of the existing rows, or endlessly."""
        options, folder = (
            self.task.options,
            streams.checkpoint_folder(self.store.warehouse, self.claim.read_stream().life),
        )
        with raise_stream_errors(self.task, self.flow.root):
            frame = self._build_stream_frame()
            self._choose_state_provider(frame)
            writer = frame.writeStream.outputMode(options.output or "append").queryName(str(self.task.table))
            writer = writer.option("checkpointLocation", folder).foreachBatch(self.publisher.publish_batch)
            # Not availableNow: that needs the snapshot at which the query began, which an append log does not retain.
            if is_endless and options.trigger is not None:
                writer = writer.trigger(processingTime=options.trigger)
            self.streaming_query = writer.start()
        self.claim.record_start(str(self.streaming_query.id), self.code.digest)
        self.publisher.begin_query(str(self.streaming_query.id))
        return self.streaming_query

    def extend_logs(self) -> bool:
        """Append new rows of the input tables to the logs; return False if there are none, or enough is unread."""
        with self._guard:
            state = self.store.state(self.branch)
            refuse_missing(self.task, [table for table in self.task.input_tables if table not in state])
            if all(state[table].location == append_log.reached for table, append_log in self.append_logs.items()):
                return False
            changed_tables = self._find_changed_lookup_tables(state)
            if changed_tables and not self._is_idle():
                return False  # rows must not be joined with lookup tables that are older than they are
            recorded_logs = (
                self.claim.read_stream().append_logs
            )  # not those in memory: an erasure may have replaced them
            append_logs = extend_append_logs(self.store, self.task, recorded_logs, state, self._find_read_snapshots())
            if append_logs == self.append_logs or not self.claim.update_append_logs(append_logs, recorded_logs):
                return False
            failpoints.reach(failpoints.LOGS_EXTENDED)
            self.append_logs = append_logs
            self._place_tables({**list_log_versions(append_logs), **changed_tables})
            return True

    def refresh_lookup_tables(self) -> None:
        """Let the next batch read the current lookup tables, all of one commit."""
        if self.lookup_tables:
            with self._guard:
                if changed_tables := self._find_changed_lookup_tables(self.store.state(self.branch)):
                    self._place_tables(changed_tables)

    def finish(self) -> None:
        """Stop after the current batch, or raise the error that ended the query."""
        assert self.streaming_query is not None
        with raise_stream_errors(self.task, self.flow.root, self.publisher):
            if (error := self.streaming_query.exception()) is not None:
                raise error
            self.publisher.close(_PATIENCE_SECONDS)
            self.streaming_query.stop()

    def wait(self) -> None:
        """Wait until all existing rows are processed."""
        assert self.streaming_query is not None
        with raise_stream_errors(self.task, self.flow.root, self.publisher):
            self.streaming_query.processAllAvailable()
            self.streaming_query.stop()
        BatchMetricsRecorder(self.store.db, self.streaming_query).record_new_batches()
        self.publisher.add_warnings(describe_left_out_rows(self.streaming_query.recentProgress))
        if self.is_behind:
            self.is_behind = False
            if self.extend_logs():
                self.start(is_endless=False)
                self.wait()

    def halt(self) -> None:
        """Stop the query in any case."""
        self.publisher.begin_query("")
        if self.streaming_query is not None and self.streaming_query.isActive:
            self.streaming_query.stop()

    def _build_stream_frame(self) -> "DataFrame":
        context, task = self.context, self.task
        stream_tables = list_streamed_tables(task)
        frames = {
            table: self._read_stream(table)
            if table in stream_tables
            else context.session.table(context.identifier(table))
            for table in task.input_tables
        }
        with refuse_computed_stream(task):
            frame = build_frame(task, frames, context.session, self.flow.root)
        if not frame.isStreaming:
            what = f"task `{task.table}` is a stream of {join_names(str(table) for table in stream_tables)}"
            what += ", but the frame that it returns does not come from it"
            raise Mistake("STREAM_NOT_ONE", what, at=str(task.place), fix="make the frame from it, or drop `stream`")
        return frame

    def _choose_state_provider(self, frame: "DataFrame") -> None:
        """Use RocksDB if the task has its own state (transformWithState): Spark supports nothing else for that."""
        is_own = "TransformWithState" in frame._jdf.queryExecution().analyzed().toString()
        self.slot_lease.session.conf.set(_PROVIDER, _ROCKS_DB if is_own else self.state_provider)

    def _read_stream(self, table: "TableName") -> "DataFrame":
        """Read the append log of a table as a stream, with the watermark that the task declares."""
        reader = self.slot_lease.session.readStream.format("iceberg").options(**_OPTIONS)
        frame = reader.load(f"{self.slot_lease.slot.name}.{LAYER}.{name_append_log(table).name}")
        return add_watermarks(self.task, table, frame)

    def _find_read_snapshots(self) -> dict[int, int]:
        """Return the snapshots that Spark has read last from append logs, and how many of their files."""
        progress = self.streaming_query.lastProgress if self.streaming_query is not None else None
        end_offsets = (
            [item.get("endOffset") for item in json.loads(progress.json)["sources"]] if progress is not None else []
        )
        snapshots = parse_offsets(item if isinstance(item, str) else json.dumps(item) for item in end_offsets if item)
        return snapshots or read_committed_offsets(self.store, self.claim.read_stream())

    def _is_idle(self) -> bool:
        """Return whether Spark is only waiting for rows."""
        if self.streaming_query is None or not self.streaming_query.isActive:
            return True
        status, is_timed = self.streaming_query.status, self.task.options.trigger is not None
        return not status["isTriggerActive"] and status["message"] in (_WAITING, _PAUSING if is_timed else _WAITING)

    def _find_changed_lookup_tables(self, state: "LakeState") -> "dict[TableName, TableVersion]":
        current_tables = _find_lookup_tables(self.task, state)
        return {table: version for table, version in current_tables.items() if version != self.lookup_tables.get(table)}

    def _place_tables(self, tables: "dict[TableName, TableVersion]") -> None:
        slots.place_tables(
            self.store.db, self.slot_lease.slot, {table: version.location for table, version in tables.items()}
        )
        self.lookup_tables |= {table: version for table, version in tables.items() if table in self.lookup_tables}
        self._update_inputs()

    def _update_inputs(self) -> None:
        log_versions = {
            table: TableVersion(append_log.reached, append_log.content)
            for table, append_log in self.append_logs.items()
        }
        self.publisher.inputs = {**log_versions, **self.lookup_tables}


def _extend_logs_to_state(
    store: "Store", task: "Task", claim: "StreamLease", state: "LakeState"
) -> "dict[TableName, AppendLog]":
    """Extend the append logs of a stream to a state; repeat if an erasure replaced them meanwhile."""
    while True:
        stream = claim.read_stream()
        append_logs = extend_append_logs(store, task, stream.append_logs, state, read_committed_offsets(store, stream))
        if append_logs == stream.append_logs:
            return append_logs
        if claim.update_append_logs(append_logs, stream.append_logs):
            failpoints.reach(failpoints.LOGS_EXTENDED)
            return append_logs


def _find_lookup_tables(task: "Task", state: "LakeState") -> "dict[TableName, TableVersion]":
    """Return the tables that a task reads at their current version, or that its checks reference."""
    table_names = {*task.input_tables, *task.referenced_tables} - set(list_streamed_tables(task)) - {task.table}
    return {table: state[table] for table in table_names if table in state}


def _build_session_conf(spark: "SparkSession") -> dict[str, str]:
    """Return the settings of a stream's session. Its state has one partition per core, unless the user set it."""
    chosen = spark.conf.get("spark.sql.shuffle.partitions", "200")
    cores = str(max(2, spark.sparkContext.defaultParallelism))
    return _CONF | {"spark.sql.shuffle.partitions": cores if chosen in (None, "200") else str(chosen)}
