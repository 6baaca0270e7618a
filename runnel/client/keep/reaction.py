"""Run what a schedule selects whenever one of its tables has changed, at most so often."""

import threading
import time
from typing import TYPE_CHECKING

from runnel.client.keep.part import Part, Tell
from runnel.client.planning import Wish
from runnel.client.running import run_project
from runnel.declare.duration import seconds_of
from runnel.names import TableName

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.flow import Flow, Schedule

_PAUSE_SECONDS = 0.2


class Reaction(Part):
    """One schedule that follows changes."""

    def __init__(
        self, lake: "Lake", flow: "Flow", schedule: "Schedule", branch: str, stop: threading.Event, tell: Tell
    ) -> None:
        super().__init__(f"schedule {schedule.name}", stop, tell)
        self._lake = lake
        self._flow = flow
        self._schedule = schedule
        self._branch = branch
        self._tables = [TableName.parse(name) for name in schedule.on_change]
        self._seen: dict[TableName, str] | None = None

    def go(self) -> None:
        """Look, and run where something changed."""
        rest = seconds_of(self._schedule.at_most_every) if self._schedule.at_most_every else 0.0
        select = (self._schedule.select,) if self._schedule.select else ()
        others = tuple(str(task.table) for task in self._flow.tasks.values() if task.options.stream)
        wish = Wish(select=select, exclude=others, branch=self._branch, reads_sources=False)
        while not self.stop.is_set():
            state = self._lake.store.state(self._branch)
            now = {table: state[table].content for table in self._tables if table in state}
            if now and now != self._seen:
                started = time.monotonic()
                ran = run_project(self._lake, wish, flow=self._flow, delivers=False)
                if ran.errors:
                    raise ran.errors[0]
                self._seen = now
                if ran.commit is not None:
                    self.tell(f"{self.name}: commit {ran.commit[:8]}")
                self.stop.wait(max(rest - (time.monotonic() - started), 0))
            self.well()
            self.stop.wait(_PAUSE_SECONDS)

    def troubled(self, state: str, problem: str | None) -> None:
        """Nobody asks for it yet but whoever reads along."""
