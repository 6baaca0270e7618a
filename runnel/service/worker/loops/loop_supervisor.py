"""Keep a project going: start its parts, watch over them, and stop them in order."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.declare.model.endpoints import Changes, Files, Kafka, Manual, Push
from runnel.declare.model.flow import CONTINUOUS
from runnel.declare.options.duration import seconds_of
from runnel.errors import RunnelError, Unreachable
from runnel.lake.flow_state import runs
from runnel.lake.history.branches import branch as branch_of
from runnel.lake.leases.pins import pinned
from runnel.names import new_run_id
from runnel.plan.fingerprint.fingerprints import Fingerprints
from runnel.run.provenance.run_basis import Basis
from runnel.service.worker.loops.compaction_loop import Upkeep
from runnel.service.worker.loops.delivery_loop import Delivery
from runnel.service.worker.loops.ingest_loop import Intake
from runnel.service.worker.loops.loop import LOG, SHORTEST_SECONDS, Note, Part, Tell, unnoted
from runnel.service.worker.loops.source_run_loop import Rerun
from runnel.service.worker.loops.stream_loop import Follower
from runnel.spark.session import running

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow, Source
    from runnel.names import TableName

_PATIENCE_SECONDS = 90.0
_PUSHED_SECONDS = 1.0  # between two looks at an inbox, unless the source says otherwise


class Keeper:
    """Everything of a project that goes on by itself, on one branch. Its commits are ascribed to one run."""

    def __init__(self, lake: "Lake", flow: "Flow", branch: str, tell: Tell, note: Note = unnoted) -> None:
        lake.store.db.read(lambda connection: branch_of(connection, branch))  # a wrong name is told at once
        self.stop = threading.Event()
        self.parts: list[Part] = []
        self.run_id = new_run_id(datetime.now(UTC))
        self._lake, self._flow, self._branch, self._tell = lake, flow, branch, tell
        fingerprints = Fingerprints(flow.root, lake.settings.secrets, lake.settings.conf).of
        streams = [task for task in flow.tasks.values() if task.options.stream]
        read = {table for task in streams for name, table in task.inputs if name in task.options.stream}
        sources = [self._source(one, is_streamed=one.table in read) for one in flow.sources.values()]
        self.parts += [part for part in sources if part is not None]
        written: list[TableName] = [task.table for task in streams]
        written += [table for table, part in zip(flow.sources, sources, strict=True) if part is not None]
        self.needs_spark = bool(streams)
        self.parts += [
            Follower(lake, flow, task, fingerprints, branch, self.run_id, self.stop, tell) for task in streams
        ]
        if flow.sinks:
            self.parts.append(Delivery(lake, flow, branch, self.stop, tell))
        if written:
            self.parts.append(Upkeep(lake, written, branch, self.stop, tell, note))

    @property
    def told(self) -> str:
        """Return how many parts of which kind it has, for people."""
        counts: dict[str, int] = {}
        for part in self.parts:
            if part.kind:
                counts[part.kind] = counts.get(part.kind, 0) + 1
        return ", ".join(f"{number} {kind}{'' if number == 1 else 's'}" for kind, number in counts.items())

    def run(self) -> None:
        """Start everything, and wait until told to stop."""
        with self._recorded():
            for part in self.parts:
                if not isinstance(part, Follower):
                    part.start()
            if self.needs_spark:
                self._start_spark()  # here, because only the main thread can make Ctrl-C reach it
            for part in self.parts:
                if isinstance(part, Follower):
                    part.start()
            while not self.stop.wait(0.2):
                self._revive()

    def end(self) -> bool:
        """Stop everything after what it is at, and tell whether all parts have ended."""
        self.stop.set()
        ended = [part.join(_PATIENCE_SECONDS) for part in self.parts]
        return all(ended)

    def _start_spark(self) -> None:
        """Start Spark, however often that takes; a wrong setting is told at once."""
        while not self.stop.is_set():
            try:
                _ = self._lake.spark
                return
            except Unreachable as error:
                LOG.error("Spark did not start", exc_info=error)
                self._tell(f"Spark did not start, it is tried again: {error}")
                self.stop.wait(SHORTEST_SECONDS)

    def _revive(self) -> None:
        """Start Spark again where its process has ended, for want of memory say; its streams are tried again."""
        lake = self._lake
        if "spark" not in lake.__dict__ or running() is not None:
            return
        self._tell("Spark's process has ended; it is started again")
        lake.__dict__.pop("spark", None)
        with suppress(RunnelError):  # whoever needs it tries again, and tells
            _ = lake.spark

    def _source(self, source: "Source", *, is_streamed: bool) -> Part | None:
        pause = pause_of(source, is_streamed=is_streamed)
        if pause is None:
            return None
        if isinstance(source.origin, Changes):
            return Rerun(self._lake, self._flow, source, self._branch, pause, self.stop, self._tell)
        lake, flow, branch = self._lake, self._flow, self._branch
        return Intake(lake, flow, source, branch, self.run_id, pause or None, self.stop, self._tell)

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Keep the code, and a record of the run that all commits name, with how it ended."""
        db, basis = self._lake.store.db, Basis(self._flow, self._lake.settings)
        detail = {"tables": [part.name for part in self.parts], "up": True}
        with pinned(db, "read") as pin:
            runs.start(db, self.run_id, self._branch, self._lake.store.author, detail, pin=pin, code=basis.code)
            try:
                yield
            finally:
                with suppress(RunnelError):  # it shows as lost then
                    runs.finish(db, self.run_id, "succeeded", None, {**detail, "steps": [], **basis.told()})


def pause_of(source: "Source", *, is_streamed: bool) -> float | None:
    """Return how long to wait between two looks at a source: 0 is not at all, None that nobody looks."""
    if isinstance(source.origin, Manual):
        return None
    if source.poll == CONTINUOUS:
        return 0.0
    if source.poll is not None:
        return seconds_of(source.poll)
    origin = source.origin.origin if isinstance(source.origin, Changes) else source.origin
    if is_streamed and isinstance(origin, Kafka | Files | Push):
        return 0.0
    return _PUSHED_SECONDS if isinstance(origin, Push) else None
