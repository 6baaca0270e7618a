"""Define the result of a run and of its steps: for the command line, scripts, notebooks and the log."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from runnel.errors import RunnelError, Unreachable, plural, raise_all
from runnel.model.work_place import WorkPlace
from runnel.names import TableName
from runnel.run.results.delivery_result import DeliveryResult

if TYPE_CHECKING:
    from runnel.lake.flow_state.ingest_position import ProcessedFile
    from runnel.model.table_version import TableVersion

RunState = Literal["succeeded", "failed", "cancelled", "nothing"]
RUN_BY_SERVICE = "the service keeps this stream going"
StepState = Literal["succeeded", "failed", "skipped", "blocked", "cancelled"]


@dataclass(frozen=True)
class StepResult:
    """The result of one step. `head` is the table afterwards, `quarantine` its quarantine table if that changed."""

    table: TableName
    action: str
    state: StepState
    reason: str = ""
    rows: int | None = None
    seconds: float = 0.0
    error: RunnelError | None = None
    head: "TableVersion | None" = field(default=None, repr=False)
    quarantine: "TableVersion | None" = field(default=None, repr=False)
    set_aside: int = 0
    processed_files: "tuple[ProcessedFile, ...]" = field(default=(), repr=False)
    detail: dict[str, Any] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()
    verified: bool | None = None  # whether it equals a full computation; None if it was not compared
    spent: Mapping[str, float] = field(default_factory=dict, repr=False)  # seconds of each phase
    waits: Mapping[str, float] = field(default_factory=dict, repr=False)  # seconds of waiting, by reason
    spark: Mapping[str, Any] | None = field(default=None, repr=False)  # Spark's metrics
    place: WorkPlace | None = None  # where files were read; None if there was no choice

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "table": str(self.table),
            "action": self.action,
            "rows": self.rows,
            "seconds": round(self.seconds, 3),
            "state": self.state,
            "error": self.error.to_json() if self.error else None,
            "reason": self.reason,
            "set_aside": self.set_aside,
            "warnings": list(self.warnings),
            "verified": self.verified,
            "spent": dict(self.spent),
            "waits": dict(self.waits),
            "spark": dict(self.spark) if self.spark else None,
            "place": self.place.json() if self.place else None,
        }


@dataclass(frozen=True)
class RunResult:
    """The result of a run. `commit` is None if nothing was published."""

    run: str | None
    state: RunState
    branch: str
    commit: str | None
    seconds: float
    steps: tuple[StepResult, ...]
    log: str | None = None
    sinks: tuple[DeliveryResult, ...] = ()
    timeline: Mapping[str, float] = field(default_factory=dict, repr=False)  # seconds of each stage, in order

    @property
    def spent(self) -> dict[str, float]:
        """Return the seconds of each phase, summed over all steps and the run itself."""
        from runnel.run.metrics.phase_times import sum_run_phases

        return sum_run_phases(self.timeline, [step.spent for step in self.steps])

    @property
    def exit_code(self) -> int:
        """Return the exit code of a command: 3 if the only errors are systems that could not be reached."""
        if self.state != "failed":
            return 130 if self.state == "cancelled" else 0
        return 3 if self.errors and all(error.exit_code == Unreachable.exit_code for error in self.errors) else 1

    @property
    def errors(self) -> tuple[RunnelError, ...]:
        """Return the errors of all steps."""
        return tuple(step.error for step in self.steps if step.error is not None)

    def raise_for_errors(self) -> "RunResult":
        """Return the result itself; raise the first error if there is one, which shows the others too."""
        raise_all(self.errors)
        return self

    def __str__(self) -> str:
        """Return the result as text for people: the steps that were not skipped, and the outcome."""
        done_steps = [step for step in self.steps if step.state != "skipped"]
        lines = [_describe_step(step) for step in done_steps]
        commit = f", commit {self.commit[:8]}" if self.commit else ""
        skipped = f", {len(self.steps) - len(done_steps):,} skipped" if len(done_steps) < len(self.steps) else ""
        lines.append(f"{self.state} on {self.branch}{commit}, {self.seconds:.1f} s{skipped}")
        return "\n".join([*lines, *(str(error) for error in self.errors)])

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
            "sinks": [delivery.json() for delivery in self.sinks],
            "spent": self.spent,
            "timeline": dict(self.timeline),
        }

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks; skipped steps are only counted."""
        from runnel import notebook_html

        done_steps = [step for step in self.steps if step.state != "skipped"]
        rows = [
            (
                step.table,
                step.action,
                step.state,
                _format_count(step.rows),
                f"{step.seconds:.1f} s",
                step.error or step.reason,
            )
            for step in done_steps
        ]
        commit = f", commit <code>{notebook_html.render_text(self.commit[:8])}</code>" if self.commit else ""
        skipped = f", {len(self.steps) - len(done_steps):,} skipped" if len(done_steps) < len(self.steps) else ""
        branch = notebook_html.render_text(self.branch)
        heading = f"<div><b>{self.state}</b> on {branch}{commit}, {self.seconds:.1f} s{skipped}</div>"
        return heading + (
            notebook_html.render_table(["table", "action", "state", "rows", "time", "why"], rows, (3, 4))
            if rows
            else ""
        )


@dataclass(frozen=True)
class Event:
    """An event of a run, for progress reports. `done` of `total` counts Spark's tasks, or files."""

    kind: Literal["note", "start", "progress", "retry", "end"]
    text: str = ""
    table: TableName | None = None
    action: str = ""
    done: int = 0
    total: int | None = None
    outcome: StepResult | None = None


ProgressCallback = Callable[[Event], None]


def _describe_step(step: StepResult) -> str:
    rows = f", {plural(step.rows, 'row')}" if step.rows is not None else ""
    reason = f": {step.reason}" if step.reason else ""
    return f"{step.table} {step.action} {step.state}{rows}, {step.seconds:.1f} s{reason}"


def _format_count(rows: int | None) -> str:
    return "" if rows is None else f"{rows:,}"
