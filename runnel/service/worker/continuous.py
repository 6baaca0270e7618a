"""Keep streams and polled sources of a branch going in one worker of all, with the code as it is now."""

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.control import declarations, schedules
from runnel.lake.control.leader_lease import Turn
from runnel.project.inspection.declarations import declared_of
from runnel.service.loop_errors import Problems
from runnel.service.worker.loops.loop_supervisor import Keeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.service.worker.flow_cache import Flows
    from runnel.service.worker.loops.loop import Tell

LOG = logging.getLogger("runnel.worker")
_PAUSE_SECONDS = 1.0


class Keeping:
    """What goes on by itself. What the service has to know of the flow is declared to the catalog."""

    def __init__(
        self,
        lake: "Lake",
        flows: "Flows",
        branch: str,
        tell: "Tell",
        problems: Problems,
        note_declared: "Callable[[bool], None]" = lambda is_declared: None,
    ) -> None:
        self._lake = lake
        self._flows = flows
        self._branch = branch
        self._tell = tell
        self._turn = Turn(lake.store.db, f"keep/{branch}")
        self._stop = threading.Event()
        self._warm = threading.Event()
        self._flow: Flow | None = None
        self._keeper: Keeper | None = None
        self._kept: threading.Thread | None = None
        self._problems = problems
        self._note_declared = note_declared  # told whether the catalog has what this worker's files say
        self._thread = threading.Thread(target=self._go, name="runnel keep", daemon=True)

    def start(self) -> None:
        """Begin; streams wait until Spark is `warm`."""
        self._thread.start()

    def warm(self) -> None:
        """Let what needs Spark start."""
        self._warm.set()

    def end(self) -> bool:
        """Stop after what is under way, and tell whether it has ended."""
        self._stop.set()
        self._thread.join()
        is_whole = self._end_keeper()
        with suppress(RunnelError):  # others see it by the clock then
            self._turn.leave()
        return is_whole

    def _go(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
                self._problems.clear("flows")
            except RunnelError as error:
                if self._problems.note("flows", str(error)):
                    self._tell(str(error))
            except Exception as error:  # a defect must not end what else goes on
                if self._problems.note("flows", f"{type(error).__name__}: {error}"):
                    LOG.error("a defect of Runnel", exc_info=error)
            self._stop.wait(_PAUSE_SECONDS)

    def _look(self) -> None:
        """Take the turn if it is free, and follow the project's files."""
        if not self._turn.take():
            if self._keeper is not None:
                self._tell("another worker keeps streams and sources going now")
                self._end_keeper()
            self._flow = None
            self._note_declared(False)
            return
        lake, flow = self._flows.get()
        if flow is self._flow:
            return
        if self._flow is not None:
            self._tell("the project's files have changed: streams and sources go on with the new code")
        self._end_keeper()
        schedules.declare(lake.store.db, [one.json() for one in flow.schedules])
        declarations.declare(lake.store.db, declared_of(flow))
        self._note_declared(True)
        self._start_keeper(lake, flow)
        self._flow = flow

    def _start_keeper(self, lake: "Lake", flow: "Flow") -> None:
        keeper = Keeper(lake, flow, self._branch, self._tell, self._note)
        if not keeper.parts:
            return
        if keeper.needs_spark:
            while not self._warm.wait(0.2):
                if self._stop.is_set():
                    return
                self._turn.take()
        self._tell(f"{lake.settings.name} on {self._branch}: {keeper.told}")
        self._problems.clear("streams and sources")
        self._keeper = keeper
        self._kept = threading.Thread(target=self._keep, args=(keeper,), name="runnel keeper", daemon=True)
        self._kept.start()

    def _note(self, part: str, problem: str | None) -> None:
        """Show what has no row of its own among streams, sources and sinks, such as upkeep."""
        self._problems.clear(part) if problem is None else self._problems.note(part, problem)

    def _keep(self, keeper: Keeper) -> None:
        try:
            keeper.run()
        except Exception as error:
            LOG.error("what was kept going has ended", exc_info=error)
            self._tell(f"what was kept going has ended: {error}")
            self._problems.note("streams and sources", f"what was kept going has ended: {error}")
            self._flow = None  # begun anew at the next look

    def _end_keeper(self) -> bool:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return True
        is_whole = keeper.end()
        if self._kept is not None:
            self._kept.join(10)
        return is_whole
