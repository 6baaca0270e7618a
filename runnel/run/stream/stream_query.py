"""The course of one stream: its tapes are wound, Spark reads them, each batch is published."""

import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.declare.model.flow import QUARANTINE
from runnel.errors import Mistake, listed
from runnel.lake.flow_state import streams
from runnel.lake.history.commits import Version
from runnel.lake.leases import slots
from runnel.plan.missing_inputs import refuse_missing
from runnel.run.errors.stream_errors import tell, told_if_computed
from runnel.run.stream import failpoints
from runnel.run.stream.batch_publisher import Batches
from runnel.run.stream.stream_inputs import LAYER, on_tape, read_before, read_in, streamed, versions, wound
from runnel.run.stream.watermarks import left_out, marked
from runnel.run.task.build_frame import build
from runnel.run.task_context import Context

if TYPE_CHECKING:
    from contextlib import ExitStack

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from runnel.declare.model.flow import Flow, Task
    from runnel.lake.flow_state.append_log import Tape
    from runnel.lake.flow_state.streams import Hold
    from runnel.lake.history.commits import State
    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.plan.fingerprint.fingerprints import Fingerprint
    from runnel.spark.slot_pool import Loan

_CONF = {"spark.sql.streaming.pollingDelay": "20ms", "spark.sql.streaming.stopTimeout": "60s"}
_OPTIONS = {"streaming-skip-delete-snapshots": "true", "streaming-max-rows-per-micro-batch": "2000000"}
_WAITING, _PAUSING = "Waiting for data to arrive", "Waiting for next trigger"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PATIENCE_SECONDS = 60.0


@dataclass
class Course:
    """One stream that this process runs, on a branch. Opened, started once, then followed or awaited.

    `beside` are the tables that it reads as they are. Spark looks them up anew for each batch, one by one, so they are
    moved only while it does not: after a batch, or while it waits.
    """

    store: "Store"
    flow: "Flow"
    task: "Task"
    branch: str
    code: "Fingerprint"
    held: "Hold"
    loan: "Loan"
    tapes: "dict[TableName, Tape]"
    beside: "dict[TableName, Version]"
    batches: Batches
    memory: str  # what Spark uses to remember things, unless it has to be another
    query: "StreamingQuery | None" = None
    is_behind: bool = False  # more is there than its tapes could take
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def open(
        cls,
        stack: "ExitStack",
        store: "Store",
        flow: "Flow",
        task: "Task",
        branch: str,
        code: "Fingerprint",
        run: str,
        spark: "SparkSession",
    ) -> "Course":
        """Hold a stream, wind its tapes up to now, and take a slot for it; `stack` ends all that."""
        from runnel.spark.slot_pool import lender

        commit = store.commit(branch)
        state = store.state(commit)
        refuse_missing(task, [table for table in task.reads if table not in state])
        if task.table not in state:
            streams.reset(store.db, branch, task.table)  # what it made is gone, so it begins anew
        stack.callback(streams.forget_unbegun, store.db, branch, task.table)
        held = stack.enter_context(streams.hold(store.db, branch, task.table, code.digest))
        tapes = _wound_up(store, task, held, state)
        beside = _beside(task, state)
        lent = lender(spark, store, "s", _conf(spark))
        layers = {task.table.layer, QUARANTINE, LAYER}
        loan = stack.enter_context(lent.lend(commit, {**beside, **versions(tapes)}, layers))
        context = Context(store, loan.slot, loan.session, run, datetime.now(UTC))
        batches = Batches(context, task, branch, held, code)
        memory = spark.conf.get(_PROVIDER) or ""
        course = cls(store, flow, task, branch, code, held, loan, tapes, beside, batches, memory)
        course.is_behind = any(tapes[table].reached != state[table].location for table in tapes)
        batches.after = course.look_beside
        course._tell_inputs()
        stack.callback(course.halt)
        return course

    def start(self, *, is_endless: bool) -> "StreamingQuery":
        """Let Spark run it: to the end of what is there, or on and on."""
        options, folder = self.task.options, streams.checkpoint(self.store.warehouse, self.held.stream().life)
        with tell(self.task, self.flow.root):
            frame = self._frame()
            self._choose_memory(frame)
            writer = frame.writeStream.outputMode(options.output or "append").queryName(str(self.task.table))
            writer = writer.option("checkpointLocation", folder).foreachBatch(self.batches.take)
            # Not availableNow: that looks for the snapshot at which the life began, which a tape does not keep.
            if is_endless and options.trigger is not None:
                writer = writer.trigger(processingTime=options.trigger)
            self.query = writer.start()
        self.held.started(str(self.query.id), self.code.digest)
        self.batches.begin(str(self.query.id))
        return self.query

    def wind(self) -> bool:
        """Let the stream see what came to its tables since; False where nothing did, or it has enough to read."""
        with self._guard:
            state = self.store.state(self.branch)
            refuse_missing(self.task, [table for table in self.task.reads if table not in state])
            if all(state[table].location == one.reached for table, one in self.tapes.items()):
                return False
            moved = self._moved_beside(state)
            if moved and not self._waits():
                return False  # rows must not meet tables beside that are older than they are
            known = self.held.stream().tapes  # not what is in memory: an erasure may have replaced it
            tapes = wound(self.store, self.task, known, state, self._read())
            if tapes == self.tapes or not self.held.reached(tapes, known):
                return False
            failpoints.reach(failpoints.WOUND)
            self.tapes = tapes
            self._place({**versions(tapes), **moved})
            return True

    def look_beside(self) -> None:
        """Let the next batch see the tables beside as they are now, all of one commit."""
        if self.beside:
            with self._guard:
                if moved := self._moved_beside(self.store.state(self.branch)):
                    self._place(moved)

    def finish(self) -> None:
        """Stop after the batch that is under way, or raise what ended the query."""
        assert self.query is not None
        with tell(self.task, self.flow.root, self.batches):
            if (error := self.query.exception()) is not None:
                raise error
            self.batches.close(_PATIENCE_SECONDS)
            self.query.stop()

    def wait(self) -> None:
        """Wait for the end of what is there."""
        assert self.query is not None
        with tell(self.task, self.flow.root, self.batches):
            self.query.processAllAvailable()
            self.query.stop()
        self.batches.warn(left_out(self.query.recentProgress))
        if self.is_behind:
            self.is_behind = False
            if self.wind():
                self.start(is_endless=False)
                self.wait()

    def halt(self) -> None:
        """Make sure that Spark is done with it, whatever happened."""
        self.batches.begin("")
        if self.query is not None and self.query.isActive:
            self.query.stop()

    def _frame(self) -> "DataFrame":
        context, task = self.batches.context, self.task
        read = streamed(task)
        frames = {
            table: self._stream(table) if table in read else context.session.table(context.identifier(table))
            for table in task.reads
        }
        with told_if_computed(task):
            made = build(task, frames, context.session, self.flow.root)
        if not made.isStreaming:
            what = f"task `{task.table}` is a stream of {listed(str(table) for table in read)}"
            what += ", but the frame that it returns does not come from it"
            raise Mistake("STREAM_NOT_ONE", what, at=str(task.place), fix="make the frame from it, or drop `stream`")
        return made

    def _choose_memory(self, frame: "DataFrame") -> None:
        """Let the stream remember in RocksDB where its state is the user's own: Spark has nothing else for that."""
        is_own = "TransformWithState" in frame._jdf.queryExecution().analyzed().toString()
        self.loan.session.conf.set(_PROVIDER, _ROCKS_DB if is_own else self.memory)

    def _stream(self, table: "TableName") -> "DataFrame":
        """Return the tape of a table as a stream, with the watermark that the task declares."""
        reader = self.loan.session.readStream.format("iceberg").options(**_OPTIONS)
        frame = reader.load(f"{self.loan.slot.name}.{LAYER}.{on_tape(table).name}")
        return marked(self.task, table, frame)

    def _read(self) -> dict[int, int]:
        """Return the snapshots of tapes that Spark has read last, and how far."""
        progress = self.query.lastProgress if self.query is not None else None
        ends = [one.get("endOffset") for one in json.loads(progress.json)["sources"]] if progress is not None else []
        found = read_in(one if isinstance(one, str) else json.dumps(one) for one in ends if one)
        return found or read_before(self.store, self.held.stream())

    def _waits(self) -> bool:
        """Tell whether Spark does nothing but look whether rows came."""
        if self.query is None or not self.query.isActive:
            return True
        status, is_timed = self.query.status, self.task.options.trigger is not None
        return not status["isTriggerActive"] and status["message"] in (_WAITING, _PAUSING if is_timed else _WAITING)

    def _moved_beside(self, state: "State") -> "dict[TableName, Version]":
        now = _beside(self.task, state)
        return {table: one for table, one in now.items() if one != self.beside.get(table)}

    def _place(self, tables: "dict[TableName, Version]") -> None:
        slots.place(self.store.db, self.loan.slot, {table: one.location for table, one in tables.items()})
        self.beside |= {table: one for table, one in tables.items() if table in self.beside}
        self._tell_inputs()

    def _tell_inputs(self) -> None:
        wound_up = {table: Version(one.reached, one.content) for table, one in self.tapes.items()}
        self.batches.inputs = {**wound_up, **self.beside}


def _wound_up(store: "Store", task: "Task", held: "Hold", state: "State") -> "dict[TableName, Tape]":
    """Wind the tapes of a stream up to a state, again where an erasure has replaced them meanwhile."""
    while True:
        stream = held.stream()
        tapes = wound(store, task, stream.tapes, state, read_before(store, stream))
        if tapes == stream.tapes:
            return tapes
        if held.reached(tapes, stream.tapes):
            failpoints.reach(failpoints.WOUND)
            return tapes


def _beside(task: "Task", state: "State") -> "dict[TableName, Version]":
    """Return the tables that a task reads as they are, or that its checks refer to."""
    wanted = {*task.reads, *task.refers} - set(streamed(task)) - {task.table}
    return {table: state[table] for table in wanted if table in state}


def _conf(spark: "SparkSession") -> dict[str, str]:
    """Return the settings of a stream's session. What it remembers has one part per core, unless the user chose."""
    chosen = spark.conf.get("spark.sql.shuffle.partitions", "200")
    cores = str(max(2, spark.sparkContext.defaultParallelism))
    return _CONF | {"spark.sql.shuffle.partitions": cores if chosen in (None, "200") else str(chosen)}
