"""Define a plan as a value: one step for each table, with what to do and why."""

from dataclasses import dataclass, field
from typing import Any, Literal

from runnel.model.table_version import TableVersion
from runnel.model.task_result import TaskResult
from runnel.model.work_place import WorkPlace
from runnel.names import TableName
from runnel.plan.date_range import RequestedDays
from runnel.plan.slices import SliceSelection

Action = Literal["skip", "reuse", "rows", "slices", "full", "stream", "ingest"]
COMPUTING_ACTIONS = ("rows", "slices", "full", "stream", "ingest")


@dataclass(frozen=True)
class PlanStep:
    """What to do for one table.

    `key` and `head` are None if an input is still to be computed: then `action` is only expected, and the run decides
    again once the inputs exist. A `head` without a location is predicted: its content is known, but the version does
    not exist yet. `base` is the result that `rows` and `slices` start from, or that stays current if an analysis
    shows that the task does not use what changed.
    """

    table: TableName
    action: Action
    reason: str
    needs: tuple[TableName, ...] = ()  # steps of this plan that must run before
    key: str | None = None
    head: TableVersion | None = None  # the table's next version: known for skip, reuse and some sources
    existing_result: TaskResult | None = field(default=None, repr=False)  # for skip and reuse of a task
    base: TaskResult | None = field(default=None, repr=False)
    slices: SliceSelection | None = None
    changed: tuple[TableName, ...] = ()  # the inputs that differ from those of `base`
    rows: int | None = None  # estimate of rows to read
    bytes: int | None = None
    is_expected: bool = False  # decided again during the run
    requested_days: RequestedDays | None = None  # days that a backfill computes
    has_detached_base: bool = False  # the table does not hold `base`: start from its version
    analyse: bool = False  # no row changed: skip if the analysed query plan does not use what changed
    place: WorkPlace | None = None  # where files are read; None if there is no choice

    @property
    def computes(self) -> bool:
        """Return whether anything is computed or read."""
        return self.action in COMPUTING_ACTIONS

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "table": str(self.table),
            "action": self.action,
            "reason": self.reason,
            "slices": self.slices.json() if self.slices else None,
            "rows": self.rows,
            "bytes": self.bytes,
            "expected": self.is_expected,
            "analyse": self.analyse,
            "place": self.place.json() if self.place else None,
        }


@dataclass(frozen=True)
class Plan:
    """All steps in an order in which they can run. `jvm` is true if Spark is needed."""

    branch: str
    commit: str
    steps: tuple[PlanStep, ...]
    jvm: bool
    notes: tuple[str, ...] = ()  # additional remarks for the reader

    @property
    def work(self) -> tuple[PlanStep, ...]:
        """Return the steps that do something."""
        return tuple(step for step in self.steps if step.action != "skip")

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "branch": self.branch,
            "commit": self.commit,
            "steps": [step.json() for step in self.steps],
            "jvm": self.jvm,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        """Return what `runnel plan` prints."""
        from runnel.plan.plan_text import format_plan

        return format_plan(self)

    def _repr_html_(self) -> str:
        """Return the steps as a table, for notebooks; skipped ones are only counted."""
        from runnel import notebook_html
        from runnel.plan.plan_text import summarize_plan

        rows = [[step.table, ("~" if step.is_expected else "") + step.action, step.reason] for step in self.work]
        footer = "".join(
            f"<div>{notebook_html.render_text(note, 500)}</div>" for note in (*self.notes, summarize_plan(self))
        )
        return (notebook_html.render_table(["table", "action", "why"], rows) if rows else "") + footer
