"""Backfill: compute the slices of a range of days again, chunk by chunk, with everything downstream.

Each chunk is a run and a commit of its own. Sources are never read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runnel.plan import reasons
from runnel.plan.date_range import Days, chunk_of, days_of
from runnel.plan.decisions.backfill import whole_reason
from runnel.plan.fingerprint.fingerprints import Fingerprints
from runnel.project.planning.plan_project import flow_of, plan_state
from runnel.project.planning.run_request import Wish
from runnel.run.results.run_result import Event, Ran, State, Watch

if TYPE_CHECKING:
    from datetime import date

    from runnel.client.lake import Lake
    from runnel.declare.model.flow import Flow
    from runnel.names import TableName
    from runnel.plan.steps import Plan, Step


@dataclass(frozen=True)
class Line:
    """What a backfill does to one table, all chunks together. `chunks` is in how many it is computed.

    None is an amount that is not known.
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
class Preview:
    """What a backfill would do."""

    days: Days
    branch: str
    chunks: tuple[Days, ...]
    lines: tuple[Line, ...]

    @property
    def rows(self) -> int:
        """Return how many rows are read, as far as it is known."""
        return sum(line.rows or 0 for line in self.lines)

    @property
    def bytes(self) -> int:
        """Return how many bytes are read, as far as it is known."""
        return sum(line.bytes or 0 for line in self.lines)

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "from": str(self.days.first),
            "to": str(self.days.last),
            "branch": self.branch,
            "chunks": [{"from": str(chunk.first), "to": str(chunk.last)} for chunk in self.chunks],
            "tables": [line.json() for line in self.lines],
            "rows": self.rows,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class Backfilled:
    """A backfill that has ended: the run of each chunk that was begun. `next` is where to go on, if it is not done."""

    days: Days
    chunks: tuple[Days, ...]
    runs: tuple[Ran, ...]
    state: State

    @property
    def next(self) -> Days | None:
        """Return the first chunk that is not published, or None where all are."""
        if self.state in ("succeeded", "nothing"):
            return None
        done = sum(run.state in ("succeeded", "nothing") for run in self.runs)
        return self.chunks[done]

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        begun = zip(self.chunks, self.runs, strict=False)
        return {
            "from": str(self.days.first),
            "to": str(self.days.last),
            "state": self.state,
            "next": str(self.next.first) if self.next else None,
            "chunks": [{"from": str(chunk.first), "to": str(chunk.last), **run.json()} for chunk, run in begun],
        }


def wished(
    select: str | Sequence[str],
    first: "str | date",
    last: "str | date",
    *,
    chunk: str | int | None = None,
    branch: str = "main",
) -> tuple[Wish, int | None]:
    """Return what is asked for, with the days of a chunk; raises a Mistake where it makes no sense."""
    return replace(Wish.of(select, (), branch), days=days_of(first, last)), chunk_of(chunk)


def preview(lake: "Lake", wish: Wish, chunk: int | None = None, flow: "Flow | None" = None) -> Preview:
    """Return what a backfill of the days of a wish would do."""
    assert wish.days is not None
    flow = flow or flow_of(lake)
    commit = lake.store.commit(wish.branch)
    state = lake.store.state(commit)
    fingerprints = Fingerprints(flow.root, lake.settings.secrets, lake.settings.conf).of
    chunks = wish.days.chunks(chunk)
    plans = [plan_state(lake, replace(wish, days=days), flow, commit, state, fingerprints).plan for days in chunks]
    return Preview(wish.days, wish.branch, chunks, _lines(plans, wish.days))


def backfill(
    lake: "Lake", wish: Wish, chunk: int | None = None, *, flow: "Flow | None" = None, watch: Watch | None = None
) -> Backfilled:
    """Compute the days of a wish chunk by chunk; the first chunk that fails or is cancelled is the last.

    Chunks that are finished stay published.
    """
    from runnel.project.execution.run_project import run_project

    assert wish.days is not None
    flow = flow or flow_of(lake)
    chunks, runs = wish.days.chunks(chunk), list[Ran]()
    for number, days in enumerate(chunks, 1):
        if watch is not None and len(chunks) > 1:
            watch(Event("note", f"chunk {number} of {len(chunks)}: {days}"))
        try:
            done = run_project(lake, replace(wish, days=days), message=f"backfill {days}", watch=watch, flow=flow)
        except KeyboardInterrupt:
            return Backfilled(wish.days, chunks, tuple(runs), "cancelled")
        runs.append(done)
        if done.state in ("failed", "cancelled"):
            return Backfilled(wish.days, chunks, tuple(runs), done.state)
    state: State = "succeeded" if any(run.commit for run in runs) else "nothing"
    return Backfilled(wish.days, chunks, tuple(runs), state)


def _lines(plans: "Sequence[Plan]", days: Days) -> tuple[Line, ...]:
    found: dict[TableName, list[Step]] = {}
    for plan in plans:
        for step in plan.steps:
            found.setdefault(step.table, []).append(step)
    return tuple(_line(table, steps, days) for table, steps in found.items())


def _line(table: "TableName", steps: "Sequence[Step]", days: Days) -> Line:
    work = [step for step in steps if step.computes]
    if not work:
        return Line(table, steps[0].action, steps[0].reason, 0)
    actions = list(dict.fromkeys(step.action for step in work))
    sliced = [step for step in work if step.slices is not None]
    return Line(
        table,
        " and ".join(actions),
        _reason(work, days),
        len(work),
        _sum([len(step.slices.keys) if step.slices and step.slices.keys is not None else None for step in sliced])
        if sliced
        else None,
        _sum([step.rows for step in work]),
        _sum([step.bytes for step in work]),
    )


def _reason(work: "Sequence[Step]", days: Days) -> str:
    """Return why a table is computed; for several chunks it speaks of all their days."""
    asked = work[0].asked
    if asked is None or asked.days == days:
        return work[0].reason
    return reasons.asked(days) if work[0].action == "slices" or len(work) > 1 else whole_reason(days)


def _sum(amounts: "Sequence[int | None]") -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None
