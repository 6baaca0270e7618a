"""Take in what a source has, as soon as it is there or each time that its `poll` has passed."""

import threading
import time
from typing import TYPE_CHECKING

from runnel.errors import Cancelled
from runnel.lake.flow_state import streams
from runnel.plan.facts import Head
from runnel.project.planning.lake_facts import look
from runnel.run.sources.continuous_ingest import Intake as Standing
from runnel.service.worker.loops.loop import Part, Tell

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.connect.ingest.detect.file_changes import Found
    from runnel.declare.model.flow import Flow, Source
    from runnel.lake.flow_state.ingest_position import Seen
    from runnel.lake.history.commits import State

PAUSE_SECONDS = 0.05
_TOLD = 5


class Intake(Part):
    """The intake of one source. `pause` is how long to wait between two looks; None: only where nothing was new."""

    kind = "source"

    def __init__(
        self,
        lake: "Lake",
        flow: "Flow",
        source: "Source",
        branch: str,
        run: str,
        pause: float | None,
        stop: threading.Event,
        tell: Tell,
    ) -> None:
        super().__init__(str(source.table), stop, tell)
        self._lake = lake
        self._flow = flow
        self._source = source
        self._branch = branch
        self._run = run
        self._pause_seconds = pause
        self._warned: set[str] = set()

    def go(self) -> None:
        """Take in, again and again."""
        lake = self._lake
        standing = Standing(
            lake.store,
            self._source,
            self._flow.root,
            self._branch,
            self._run,
            self._look,
            lambda: lake.spark,
            self._check,
        )
        self.troubled("running", None)
        while not self.stop.is_set():
            started = time.monotonic()
            taken = standing.take()
            self.well()
            if taken is not None:
                streams.measured(lake.store.db, self._branch, self._source.table, taken.detail)
                self._warn(taken.warnings)
            if self._pause_seconds is not None:
                self.stop.wait(max(self._pause_seconds - (time.monotonic() - started), 0))
            elif taken is None:
                self.stop.wait(PAUSE_SECONDS)
        self.troubled("idle", None)

    def troubled(self, state: str, problem: str | None) -> None:
        """Write it down beside the streams."""
        streams.told(self._lake.store.db, self._branch, self._source.table, state, problem)

    def _look(self, source: "Source", state: "State", position: "dict[str, Seen]") -> "Found | None":
        version = state.get(source.table)
        head = Head(version.location, version.content) if version is not None else None
        return look(self._flow, source.table, head, lambda: position, self._lake.store.storage)

    def _check(self) -> None:
        if self.stop.is_set():
            raise Cancelled

    def _warn(self, warnings: tuple[str, ...]) -> None:
        """Tell a warning once: a source that is read on and on may have the same one each time."""
        for text in warnings:
            if text not in self._warned and len(self._warned) < _TOLD:
                self.tell(f"warning: {self.name}: {text}")
            self._warned.add(text)
