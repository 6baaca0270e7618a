"""Backfill: recompute the slices of a range of days, chunk by chunk, with everything downstream.

Each chunk is a run and a commit of its own. Sources are never read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runnel.model.date_range import DateRange
from runnel.model.run_request import RunRequest
from runnel.plan import reasons
from runnel.plan.date_range import check_chunk_count, parse_chunk_days, parse_date_range
from runnel.plan.decisions.backfill import describe_full_backfill
from runnel.plan.fingerprint.fingerprints import Fingerprinter
from runnel.project.planning.plan_project import load_project_flow, plan_state
from runnel.run.results.run_result import Event, ProgressCallback, RunResult, RunState

if TYPE_CHECKING:
    from datetime import date

    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.names import TableName
    from runnel.plan.steps import Plan, PlanStep


@dataclass(frozen=True)
class BackfillTable:
    """What a backfill does to one table, summed over all chunks. `chunks` is the number of chunks that compute it.

    An amount is None if it is not known.
    """

    table: "TableName"
    action: str
    reason: str
    chunks: int
    slices: int | None = None
    rows: int | None = None
    bytes: int | None = None

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "table": str(self.table),
            "action": self.action,
            "reason": self.reason,
            "chunks": self.chunks,
            "slices": self.slices,
            "rows": self.rows,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class BackfillPreview:
    """What a backfill would do."""

    days: DateRange
    branch: str
    chunks: tuple[DateRange, ...]
    tables: tuple[BackfillTable, ...]

    @property
    def rows(self) -> int:
        """Return how many rows are read, as far as known."""
        return sum(table.rows or 0 for table in self.tables)

    @property
    def bytes(self) -> int:
        """Return how many bytes are read, as far as known."""
        return sum(table.bytes or 0 for table in self.tables)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "from": str(self.days.first),
            "to": str(self.days.last),
            "branch": self.branch,
            "chunks": [{"from": str(chunk.first), "to": str(chunk.last)} for chunk in self.chunks],
            "tables": [table.json() for table in self.tables],
            "rows": self.rows,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class BackfillResult:
    """A backfill that has ended, with the run of each chunk that was started. `next` is the chunk to continue with."""

    days: DateRange
    chunks: tuple[DateRange, ...]
    runs: tuple[RunResult, ...]
    state: RunState

    @classmethod
    def from_runs(cls, days: DateRange, chunks: tuple[DateRange, ...], runs: Sequence[RunResult]) -> "BackfillResult":
        """Return the result of a backfill whose last started chunk ended as the last of `runs`."""
        state: RunState = "succeeded" if any(run.commit for run in runs) else "nothing"
        is_stopped = bool(runs) and runs[-1].state in ("failed", "cancelled")
        return cls(days, chunks, tuple(runs), runs[-1].state if is_stopped else state)

    @property
    def next(self) -> DateRange | None:
        """Return the first chunk that is not published, or None if all are."""
        if self.state in ("succeeded", "nothing"):
            return None
        finished = sum(run.state in ("succeeded", "nothing") for run in self.runs)
        return self.chunks[finished]

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        started_chunks = zip(self.chunks, self.runs, strict=False)
        return {
            "from": str(self.days.first),
            "to": str(self.days.last),
            "state": self.state,
            "next": str(self.next.first) if self.next else None,
            "chunks": [
                {"from": str(chunk.first), "to": str(chunk.last), **run.json()} for chunk, run in started_chunks
            ],
        }


def build_backfill_request(
    select: str | Sequence[str],
    first: "str | date",
    last: "str | date",
    *,
    chunk: str | int | None = None,
    branch: str = "main",
) -> tuple[RunRequest, int | None]:
    """Return the run request and the number of days of a chunk; raise a Mistake if the arguments are invalid."""
    days, days_per_chunk = parse_date_range(first, last), parse_chunk_days(chunk)
    check_chunk_count(days, days_per_chunk)
    return replace(RunRequest.create(select, (), branch), days=days), days_per_chunk


def preview_backfill(
    lake: "Lake", request: RunRequest, chunk: int | None = None, flow: "Flow | None" = None
) -> BackfillPreview:
    """Return what a backfill of the days of a request would do."""
    assert request.days is not None
    flow = flow or load_project_flow(lake)
    commit = lake.store.commit(request.branch)
    state = lake.store.state(commit)
    fingerprints = Fingerprinter(flow.root, lake.settings.secrets, lake.settings.conf).fingerprint_of
    chunks = request.days.chunks(chunk)
    plans = [
        plan_state(lake, replace(request, days=days), flow, commit, state, fingerprints=fingerprints).plan
        for days in chunks
    ]
    return BackfillPreview(request.days, request.branch, chunks, _summarize_tables(plans, request.days))


def backfill(
    lake: "Lake",
    request: RunRequest,
    chunk: int | None = None,
    *,
    flow: "Flow | None" = None,
    watch: ProgressCallback | None = None,
) -> BackfillResult:
    """Compute the days of a request chunk by chunk; stop after the first chunk that fails or is cancelled.

    Chunks that are finished stay published.
    """
    from runnel.project.execution.run_project import run_project

    assert request.days is not None
    flow = flow or load_project_flow(lake)
    chunks, runs = request.days.chunks(chunk), list[RunResult]()
    for number, days in enumerate(chunks, 1):
        if watch is not None and len(chunks) > 1:
            watch(Event("note", f"chunk {number} of {len(chunks)}: {days}"))
        try:
            result = run_project(lake, request.for_chunk(days), watch=watch, flow=flow)
        except KeyboardInterrupt:
            return BackfillResult(request.days, chunks, tuple(runs), "cancelled")
        runs.append(result)
        if result.state in ("failed", "cancelled"):
            break
    return BackfillResult.from_runs(request.days, chunks, runs)


def _summarize_tables(plans: "Sequence[Plan]", days: DateRange) -> tuple[BackfillTable, ...]:
    steps_by_table: dict[TableName, list[PlanStep]] = {}
    for plan in plans:
        for step in plan.steps:
            steps_by_table.setdefault(step.table, []).append(step)
    return tuple(_summarize_table(table, steps, days) for table, steps in steps_by_table.items())


def _summarize_table(table: "TableName", steps: "Sequence[PlanStep]", days: DateRange) -> BackfillTable:
    computed_steps = [step for step in steps if step.computes]
    if not computed_steps:
        return BackfillTable(table, steps[0].action, steps[0].reason, 0)
    actions = list(dict.fromkeys(step.action for step in computed_steps))
    sliced_steps = [step for step in computed_steps if step.slices is not None]
    return BackfillTable(
        table,
        " and ".join(actions),
        _describe_reason(computed_steps, days),
        len(computed_steps),
        _sum_if_known(
            [len(step.slices.keys) if step.slices and step.slices.keys is not None else None for step in sliced_steps]
        )
        if sliced_steps
        else None,
        _sum_if_known([step.rows for step in computed_steps]),
        _sum_if_known([step.bytes for step in computed_steps]),
    )


def _describe_reason(computed_steps: "Sequence[PlanStep]", days: DateRange) -> str:
    """Return why a table is computed; for several chunks the reason names all their days."""
    requested = computed_steps[0].requested_days
    if requested is None or requested.days == days:
        return computed_steps[0].reason
    return (
        reasons.describe_backfill(days)
        if computed_steps[0].action == "slices" or len(computed_steps) > 1
        else describe_full_backfill(days)
    )


def _sum_if_known(amounts: "Sequence[int | None]") -> int | None:
    known_amounts = [amount for amount in amounts if amount is not None]
    return sum(known_amounts) if len(known_amounts) == len(amounts) else None
