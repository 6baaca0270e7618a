"""Who follows a run from the side, for other tools. Nothing that goes wrong with them touches the run."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.declare.settings import Settings
    from runnel.errors import RunnelError
    from runnel.names import TableName
    from runnel.run.metrics.step_timing import Account
    from runnel.run.results.run_result import Done, Event
    from runnel.run.run_context import Work

LOG = logging.getLogger("runnel.run")


@dataclass(frozen=True)
class Ended:
    """How a run ended. It is `moved` where somebody else was faster: then it is begun anew."""

    state: str
    commit: str | None
    steps: "tuple[Done, ...]"
    error: "RunnelError | None" = None
    is_moved: bool = False
    timeline: Mapping[str, float] = field(default_factory=dict)
    accounts: "Mapping[TableName, Account]" = field(default_factory=dict)
    ended_at: float | None = None  # seconds since 1970, when it had published


class Witness(Protocol):
    """Follows one run. What it does takes no time worth telling."""

    def begin(self, work: "Work") -> None:
        """The run begins."""

    def see(self, event: "Event") -> None:
        """Something happens; several threads tell."""

    def end(self, ended: Ended) -> None:
        """The run has ended."""


class Witnesses:
    """All who follow a run."""

    def __init__(self, all_of_them: Sequence[Witness] = ()) -> None:
        self._all = all_of_them

    def begin(self, work: "Work") -> None:
        """Tell that a run begins."""
        for one in self._all:
            try:
                one.begin(work)
            except Exception as error:
                LOG.warning("a run is not followed", exc_info=error)

    def see(self, event: "Event") -> None:
        """Tell what happens."""
        for one in self._all:
            try:
                one.see(event)
            except Exception as error:
                LOG.warning("what happened in a run is not told", exc_info=error)

    def end(self, ended: Ended) -> None:
        """Tell how it ended."""
        for one in self._all:
            try:
                one.end(ended)
            except Exception as error:
                LOG.warning("how a run ended is not told", exc_info=error)


def witnesses_of(settings: "Settings") -> Witnesses:
    """Return who follows the runs of a project, as its settings and the environment say."""
    from runnel.run.openlineage.sender import sender_of

    found: list[Witness] = []
    if (sender := sender_of(settings.openlineage)) is not None:
        from runnel.run.openlineage.run_observer import LineageWitness

        found.append(LineageWitness(sender, settings.name))
    if tracing.configure(settings.telemetry, settings.name):
        from runnel.run.trace_observer import TraceWitness

        found.append(TraceWitness())
    return Witnesses(found)
