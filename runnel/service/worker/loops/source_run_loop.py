"""Run a source that is made of other tables, such as a log of changes, each time that its `poll` has passed."""

import threading
import time
from typing import TYPE_CHECKING

from runnel.lake.flow_state import streams
from runnel.project.execution.run_project import run_project
from runnel.project.planning.run_request import Wish
from runnel.service.worker.loops.loop import Part, Tell

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow, Source

_SHORTEST_SECONDS = 0.5  # each pass is a run with a record and a log of its own


class Rerun(Part):
    """The runs of one source."""

    kind = "source"

    def __init__(
        self,
        lake: "Lake",
        flow: "Flow",
        source: "Source",
        branch: str,
        pause: float,
        stop: threading.Event,
        tell: Tell,
    ) -> None:
        super().__init__(str(source.table), stop, tell)
        self._lake = lake
        self._flow = flow
        self._source = source
        self._branch = branch
        self._pause_seconds = max(pause, _SHORTEST_SECONDS)

    def go(self) -> None:
        """Run it, again and again."""
        wish = Wish(select=(f"+{self._source.table}",), branch=self._branch)
        self.troubled("running", None)
        while not self.stop.is_set():
            started = time.monotonic()
            ran = run_project(self._lake, wish, flow=self._flow, delivers=False)
            if ran.errors:
                raise ran.errors[0]
            self.well()
            if ran.commit is not None:
                rows = sum(step.rows or 0 for step in ran.steps)
                detail = {"rows": rows, "input_rows": rows, "total_ms": round(1000 * ran.seconds)}
                streams.measured(self._lake.store.db, self._branch, self._source.table, detail)
            self.stop.wait(max(self._pause_seconds - (time.monotonic() - started), 0))
        self.troubled("idle", None)

    def troubled(self, state: str, problem: str | None) -> None:
        """Write it down beside the streams."""
        streams.told(self._lake.store.db, self._branch, self._source.table, state, problem)
