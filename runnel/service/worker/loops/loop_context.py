"""What all continuous loops of a branch share."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow

Reporter = Callable[[str], None]
ProblemReporter = Callable[[str, str | None], None]  # name of a loop and its problem, None if it has none


def ignore_problem(_loop_name: str, _problem: str | None) -> None:
    """Ignore a problem."""


@dataclass(frozen=True)
class LoopContext:
    """The project and branch that loops work on, the event that stops them, and whom they report to.

    `run_id` is the run that their commits name. `report_problem` is for loops that have no row of their own.
    """

    lake: "Lake"
    flow: "Flow"
    branch: str
    run_id: str
    report: Reporter
    report_problem: ProblemReporter = ignore_problem
    stop: threading.Event = field(default_factory=threading.Event)
