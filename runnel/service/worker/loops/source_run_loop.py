"""Run a source that is computed from other tables, such as a change log, each time its `poll` interval has passed."""

import time
from typing import TYPE_CHECKING

from runnel.lake.flow_state import streams
from runnel.model.run_request import RunRequest
from runnel.project.execution.run_project import run_project
from runnel.service.worker.loops.loop import Loop

if TYPE_CHECKING:
    from runnel.declare.model.flow import Source
    from runnel.service.worker.loops.loop_context import LoopContext

_SHORTEST_SECONDS = 0.5  # each iteration is a run with a record and a log of its own


class SourceRunLoop(Loop):
    """Runs one source in a loop."""

    kind = "source"

    def __init__(self, context: "LoopContext", source: "Source", pause_seconds: float) -> None:
        super().__init__(str(source.table), context)
        self._source = source
        self._pause_seconds = max(pause_seconds, _SHORTEST_SECONDS)

    def run_loop(self) -> None:
        """Run the source in a loop."""
        request = RunRequest(select=(f"+{self._source.table}",), branch=self.context.branch)
        self.record_state("running", None)
        while not self.stop.is_set():
            started = time.monotonic()
            result = run_project(self.context.lake, request, flow=self.context.flow, delivers=False)
            if result.errors:
                raise result.errors[0]
            self.mark_healthy()
            if result.commit is not None:
                rows = sum(step.rows or 0 for step in result.steps)
                detail = {"rows": rows, "input_rows": rows, "total_ms": round(1000 * result.seconds)}
                streams.record_ingest(self.context.lake.store.db, self.context.branch, self._source.table, detail)
            self.stop.wait(max(self._pause_seconds - (time.monotonic() - started), 0))
        self.record_state("idle", None)

    def record_state(self, state: str, problem: str | None) -> None:
        """Record the state in the table of streams."""
        streams.record_state(self.context.lake.store.db, self.context.branch, self._source.table, state, problem)
