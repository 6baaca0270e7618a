"""Ingest a source continuously: as soon as there is new data, or each time its `poll` interval has passed."""

import time
from typing import TYPE_CHECKING

from runnel.errors import Cancelled
from runnel.lake.flow_state import streams
from runnel.project.planning.lake_facts import read_file_changes
from runnel.project.work_places import create_work_context
from runnel.run.sources.continuous_ingest import ContinuousIngest
from runnel.service.worker.loops.look_recorder import LookRecorder
from runnel.service.worker.loops.loop import Loop

if TYPE_CHECKING:
    from runnel.connect.ingest.detect.file_changes import FileChanges
    from runnel.declare.model.flow import Source
    from runnel.lake.flow_state.ingest_position import ProcessedFile
    from runnel.lake.history.commits import LakeState
    from runnel.service.worker.loops.loop_context import LoopContext

PAUSE_SECONDS = 0.05
_MAX_WARNINGS = 5


class IngestLoop(Loop):
    """Ingests one source in a loop, every `pause_seconds`; if that is None, it pauses only when nothing is new."""

    kind = "source"

    def __init__(self, context: "LoopContext", source: "Source", pause_seconds: float | None) -> None:
        super().__init__(str(source.table), context)
        self._source = source
        self._pause_seconds = pause_seconds
        self._warned: set[str] = set()

    def build_ingest(self) -> ContinuousIngest:
        """Return the ingest of the source, whose batches are read where the settings of the project say."""
        lake, job_group = self.context.lake, f"{self.context.run_id} {self._source.table}"
        return ContinuousIngest(
            lake.store,
            self._source,
            self.context.flow.root,
            self.context.branch,
            self.context.run_id,
            self._read_file_changes,
            lambda: lake.spark,
            self._raise_if_stopped,
            LookRecorder(lake.store.db, self.context.branch, self._source.table),
            create_work_context(lake.settings, lambda: lake.spark, job_group).choose_runner,
        )

    def run_loop(self) -> None:
        """Ingest in a loop."""
        lake, ingest = self.context.lake, self.build_ingest()
        self.record_state("running", None)
        while not self.stop.is_set():
            started = time.monotonic()
            batch = ingest.ingest_once()
            self.mark_healthy()
            if batch is not None:
                streams.record_ingest(lake.store.db, self.context.branch, self._source.table, batch.detail)
                self._report_warnings(batch.warnings)
            if self._pause_seconds is not None:
                self.stop.wait(max(self._pause_seconds - (time.monotonic() - started), 0))
            elif batch is None:
                self.stop.wait(PAUSE_SECONDS)
        self.record_state("idle", None)

    def record_state(self, state: str, problem: str | None) -> None:
        """Record the state in the table of streams."""
        streams.record_state(self.context.lake.store.db, self.context.branch, self._source.table, state, problem)

    def _read_file_changes(
        self, source: "Source", state: "LakeState", position: "dict[str, ProcessedFile]"
    ) -> "FileChanges | None":
        return read_file_changes(
            self.context.flow, source.table, state.get(source.table), lambda: position, self.context.lake.store.storage
        )

    def _raise_if_stopped(self) -> None:
        if self.stop.is_set():
            raise Cancelled

    def _report_warnings(self, warnings: tuple[str, ...]) -> None:
        """Report each warning once: a continuously read source may have the same warning each time."""
        for text in warnings:
            if text not in self._warned and len(self._warned) < _MAX_WARNINGS:
                self.report(f"warning: {self.name}: {text}")
            self._warned.add(text)
