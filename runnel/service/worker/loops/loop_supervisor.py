"""Run a project continuously: start its loops, supervise them, and stop them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Changes, Files, Kafka, Manual, Push
from runnel.declare.model.flow import CONTINUOUS
from runnel.declare.options.duration import parse_duration
from runnel.errors import RunnelError, Unreachable, plural
from runnel.lake.flow_state import runs
from runnel.lake.history.branches import get_branch as branch_of
from runnel.lake.leases.pins import acquire_pin
from runnel.names import new_run_id
from runnel.plan.fingerprint.fingerprints import Fingerprinter
from runnel.run.provenance.run_basis import RunBasis
from runnel.service.worker.loops.compaction_loop import CompactionLoop
from runnel.service.worker.loops.delivery_loop import DeliveryLoop
from runnel.service.worker.loops.ingest_loop import IngestLoop
from runnel.service.worker.loops.loop import LOG, SHORTEST_SECONDS, Loop
from runnel.service.worker.loops.loop_context import LoopContext, ProblemReporter, Reporter, ignore_problem
from runnel.service.worker.loops.source_run_loop import SourceRunLoop
from runnel.service.worker.loops.stream_loop import StreamLoop
from runnel.spark.session import running_session

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow, Source
    from runnel.names import TableName

_PATIENCE_SECONDS = 90.0
_PUSHED_SECONDS = 1.0  # between two reads of an inbox, unless the source has a `poll`


class LoopSupervisor:
    """All continuous loops of a project on one branch. Their commits belong to one run."""

    def __init__(
        self,
        lake: "Lake",
        flow: "Flow",
        branch: str,
        report: Reporter,
        report_problem: ProblemReporter = ignore_problem,
    ) -> None:
        lake.store.db.read(lambda connection: branch_of(connection, branch))  # raises if there is no such branch
        self.context = LoopContext(lake, flow, branch, new_run_id(datetime.now(UTC)), report, report_problem)
        self.stop = self.context.stop
        self.loops: list[Loop] = []
        fingerprints = Fingerprinter(flow.root, lake.settings.secrets, lake.settings.conf).fingerprint_of
        streams = [task for task in flow.tasks.values() if task.options.stream]
        streamed_tables = {table for task in streams for name, table in task.inputs if name in task.options.stream}
        source_loops = [
            self._create_source_loop(source, is_streamed=source.table in streamed_tables)
            for source in flow.sources.values()
        ]
        self.loops += [loop for loop in source_loops if loop is not None]
        written_tables: list[TableName] = [task.table for task in streams]
        written_tables += [table for table, loop in zip(flow.sources, source_loops, strict=True) if loop is not None]
        self.needs_spark = bool(streams)
        self.loops += [StreamLoop(self.context, task, fingerprints) for task in streams]
        if flow.sinks:
            self.loops.append(DeliveryLoop(self.context))
        if written_tables:
            self.loops.append(CompactionLoop(self.context, written_tables))

    @property
    def summary(self) -> str:
        """Return the number of loops of each kind as a text."""
        counts: dict[str, int] = {}
        for loop in self.loops:
            if loop.kind:
                counts[loop.kind] = counts.get(loop.kind, 0) + 1
        return ", ".join(plural(number, kind) for kind, number in counts.items())

    def run(self) -> None:
        """Start all loops, and wait until told to stop."""
        with self._record_run():
            for loop in self.loops:
                if not isinstance(loop, StreamLoop):
                    loop.start()
            if self.needs_spark:
                self._start_spark()  # in the main thread: only there Ctrl-C can be forwarded to it
            for loop in self.loops:
                if isinstance(loop, StreamLoop):
                    loop.start()
            while not self.stop.wait(0.2):
                self._restart_spark()

    def shut_down(self) -> bool:
        """Stop all loops after their current work, and return whether all have ended."""
        self.stop.set()
        ended = [loop.join(_PATIENCE_SECONDS) for loop in self.loops]
        return all(ended)

    def _start_spark(self) -> None:
        """Start Spark, retrying if it can't be reached; a wrong setting raises at once."""
        while not self.stop.is_set():
            try:
                _ = self.context.lake.spark
                return
            except Unreachable as error:
                LOG.error("Spark did not start", exc_info=error)
                self.context.report(f"Spark did not start; the worker tries again: {error}")
                self.stop.wait(SHORTEST_SECONDS)

    def _restart_spark(self) -> None:
        """Restart Spark if its process has ended, for example out of memory; its streams try again."""
        spark_provider = self.context.lake.spark_provider
        if spark_provider.session is None or running_session() is not None:
            return
        self.context.report("Spark's process has ended; the worker restarts it")
        spark_provider.drop()
        with suppress(RunnelError):  # a loop that needs Spark tries again and reports the error
            spark_provider.get()

    def _create_source_loop(self, source: "Source", *, is_streamed: bool) -> Loop | None:
        pause_seconds = choose_pause_seconds(source, is_streamed=is_streamed)
        if pause_seconds is None:
            return None
        if isinstance(source.origin, Changes):
            return SourceRunLoop(self.context, source, pause_seconds)
        return IngestLoop(self.context, source, pause_seconds or None)

    @contextmanager
    def _record_run(self) -> Iterator[None]:
        """Store the code, and record the run that all commits name, with its end."""
        context, store = self.context, self.context.lake.store
        basis = RunBasis(context.flow, context.lake.settings)
        detail = {"tables": [loop.name for loop in self.loops], "up": True, "code_id": basis.code.id}
        with acquire_pin(store.db, "read") as pin:
            leases = runs.RunLeases(pin)
            runs.start(store.db, context.run_id, context.branch, store.author, detail, leases=leases, code=basis.code)
            try:
                yield
            finally:
                with suppress(RunnelError):  # the run is then shown as lost
                    end_detail = {**detail, "steps": [], **basis.describe_run()}
                    runs.finish(store.db, context.run_id, "succeeded", None, end_detail)


def choose_pause_seconds(source: "Source", *, is_streamed: bool) -> float | None:
    """Return how long to wait between two reads of a source: 0 means no pause, None that it is not read in a loop."""
    if isinstance(source.origin, Manual):
        return None
    if source.poll == CONTINUOUS:
        return 0.0
    if source.poll is not None:
        return parse_duration(source.poll)
    origin = source.origin.origin if isinstance(source.origin, Changes) else source.origin
    if is_streamed and isinstance(origin, Kafka | Files | Push):
        return 0.0
    return _PUSHED_SECONDS if isinstance(origin, Push) else None
