"""What a run did, as values: for the command line, scripts, notebooks and the log."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from runnel.errors import RunnelError, Unreachable
from runnel.names import TableName
from runnel.run.metrics.phase_times import total
from runnel.run.results.delivery_result import Sent

if TYPE_CHECKING:
    from runnel.lake.flow_state.ingest_position import Seen
    from runnel.plan.facts import Head

State = Literal["succeeded", "failed", "cancelled", "nothing"]
KEPT_GOING = "the service keeps this stream going"
StepState = Literal["succeeded", "failed", "skipped", "blocked", "cancelled"]


@dataclass(frozen=True)
class Done:
    """What became of one step. `head` is the table afterwards, `aside` its quarantine table where that changed."""

    table: TableName
    action: str
    state: StepState
    reason: str = ""
    rows: int | None = None
    seconds: float = 0.0
    error: RunnelError | None = None
    head: "Head | None" = field(default=None, repr=False)
    aside: "Head | None" = field(default=None, repr=False)
    set_aside: int = 0
    seen: "tuple[Seen, ...]" = field(default=(), repr=False)
    detail: dict[str, Any] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()
    verified: bool | None = None  # whether it equals a full computation; None where that was not compared
    spent: Mapping[str, float] = field(default_factory=dict, repr=False)  # seconds of each phase
    waits: Mapping[str, float] = field(default_factory=dict, repr=False)  # seconds of waiting, by what for
    spark: Mapping[str, Any] | None = field(default=None, repr=False)  # what Spark did for it

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "table": str(self.table),
            "action": self.action,
            "rows": self.rows,
            "seconds": round(self.seconds, 3),
            "state": self.state,
            "error": self.error.parts() if self.error else None,
            "reason": self.reason,
            "set_aside": self.set_aside,
            "warnings": list(self.warnings),
            "verified": self.verified,
            "spent": dict(self.spent),
            "waits": dict(self.waits),
            "spark": dict(self.spark) if self.spark else None,
        }


@dataclass(frozen=True)
class Ran:
    """A run that has ended. `commit` is None where nothing was published."""

    run: str | None
    state: State
    branch: str
    commit: str | None
    seconds: float
    steps: tuple[Done, ...]
    log: str | None = None
    sinks: tuple[Sent, ...] = ()
    timeline: Mapping[str, float] = field(default_factory=dict, repr=False)  # what it did when, in seconds

    @property
    def spent(self) -> dict[str, float]:
        """Return the seconds of each phase, of all steps and of the run itself."""
        return total(self.timeline, [step.spent for step in self.steps])

    @property
    def exit_code(self) -> int:
        """Return what a command ends with: 3 where nothing failed but that a system could not be reached."""
        if self.state != "failed":
            return 130 if self.state == "cancelled" else 0
        return 3 if self.errors and all(error.exit_code == Unreachable.exit_code for error in self.errors) else 1

    @property
    def errors(self) -> tuple[RunnelError, ...]:
        """Return what went wrong."""
        return tuple(step.error for step in self.steps if step.error is not None)

    def sound(self) -> "Ran":
        """Return itself; raise the first error where something went wrong."""
        if self.errors:
            raise self.errors[0]
        return self

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "run": self.run,
            "state": self.state,
            "commit": self.commit,
            "branch": self.branch,
            "seconds": round(self.seconds, 3),
            "steps": [step.json() for step in self.steps],
            "log": self.log,
            "sinks": [sent.json() for sent in self.sinks],
            "spent": self.spent,
            "timeline": dict(self.timeline),
        }

    def _repr_html_(self) -> str:
        """Return what was done as a table, for notebooks; skipped steps are only counted."""
        from runnel import notebook_html

        did = [step for step in self.steps if step.state != "skipped"]
        rows = [
            (
                step.table,
                step.action,
                step.state,
                _number(step.rows),
                f"{step.seconds:.1f} s",
                step.error or step.reason,
            )
            for step in did
        ]
        commit = f", commit <code>{notebook_html.text(self.commit[:8])}</code>" if self.commit else ""
        skipped = f", {len(self.steps) - len(did):,} skipped" if len(did) < len(self.steps) else ""
        branch = notebook_html.text(self.branch)
        told = f"<div><b>{self.state}</b> on {branch}{commit}, {self.seconds:.1f} s{skipped}</div>"
        return told + (
            notebook_html.table(["table", "action", "state", "rows", "time", "why"], rows, (3, 4)) if rows else ""
        )


@dataclass(frozen=True)
class Event:
    """Something that happens during a run, for whoever watches. `done` of `total` are Spark's tasks, or files."""

    kind: Literal["note", "start", "progress", "retry", "end"]
    text: str = ""
    table: TableName | None = None
    action: str = ""
    done: int = 0
    total: int | None = None
    outcome: Done | None = None


Watch = Callable[[Event], None]


def _number(rows: int | None) -> str:
    return "" if rows is None else f"{rows:,}"
