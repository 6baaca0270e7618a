"""Queue what schedules ask for, each time once.

How far a schedule has come is moved on in the transaction that queues, and only from where it was seen. So several
schedulers over one lake, a clock that jumps, and a crash at any moment neither lose a time nor queue it twice.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from runnel.declare.options.duration import seconds_of
from runnel.errors import RunnelError, Unreachable
from runnel.lake.catalog.database import moment, stamp
from runnel.lake.control import run_queue, schedules
from runnel.lake.control.schedules import Standing, Step
from runnel.names import TableName
from runnel.project.inspection.schedule_times import due
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.lake.history.commits import State
    from runnel.lake.store import Store

LOG = logging.getLogger("runnel.scheduler")
MOST = 500  # times of one schedule that are looked at in one go
_LATE = timedelta(minutes=1)  # with catch_up="none" a time that is older is missed
_AUTHOR = "scheduler"
_ENOUGH = 1 << 62


@dataclass(frozen=True)
class Problem:
    """Why a schedule queues nothing. `is_passing`: something can't be reached, which may end by itself."""

    schedule: str
    what: str
    since: str
    fix: str
    is_passing: bool = False


class Scheduler:
    """The schedules of a lake. `now` is a clock; `are_declared` tells whether the catalog has them as they are now."""

    def __init__(
        self,
        store: "Store",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        are_declared: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._are_declared = are_declared
        self._now = now
        self._problems: dict[str, Problem] = {}

    @property
    def problems(self) -> "dict[str, Problem]":
        """Return why schedules queue nothing, by their names: those that could not be read when last looked at."""
        return dict(self._problems)

    def tick(self) -> list[str]:
        """Queue everything that is due now, and return its ids; nothing until the schedules are known to be current."""
        if not self._are_declared():
            return []
        now = self._now()
        standing = [one for one in self._store.db.read(schedules.standing) if one.paused_at is None]
        steps = [step for one in standing if (step := self._step(one, now)) is not None]
        names = {one.name for one in standing}
        self._problems = {name: problem for name, problem in self._problems.items() if name in names}
        return schedules.advance(self._store.db, steps)

    def _step(self, one: Standing, now: datetime) -> Step | None:
        """Return how a schedule goes on; one that can't be read holds up no other."""
        try:
            step = self._changed(one, now) if one.declared.get("on_change") else timed(one, now)
            step = _traced(step) if step is not None else None
        except Exception as error:  # also a defect: it must not end what the other schedules do
            self._note(one.name, error, now)
            return None
        self._problems.pop(one.name, None)
        return step

    def _note(self, name: str, error: Exception, now: datetime) -> None:
        """Remember why a schedule queues nothing, and since when; the log has it once."""
        known = self._problems.get(name)
        what = error.what if isinstance(error, RunnelError) else f"{type(error).__name__}: {error}"
        if known is None or known.what != what:
            LOG.error("schedule %s: %s", name, error, exc_info=error)
        since = known.since if known is not None else stamp(now)
        fix = error.fix if isinstance(error, RunnelError) else "this is a defect of Runnel; `service.log` has the trace"
        self._problems[name] = Problem(name, what, since, fix or "", isinstance(error, Unreachable))

    def _changed(self, one: Standing, now: datetime) -> Step | None:
        """Return what follows a change of the tables of a schedule, if it is large enough and not too soon."""
        branch = str(one.declared.get("branch", "main"))
        state = self._store.state(branch)
        tables = [TableName.parse(name) for name in one.declared["on_change"]]
        contents = {str(table): state[table].content for table in tables if table in state}
        seen = one.cursor.get("seen", {})
        if not contents or contents == seen:
            return None
        if _is_too_soon(one, now) or not self._is_enough(one, tables, state) or self._is_open(one):
            return None
        number = int(one.cursor.get("number", 0)) + 1
        locations = {str(table): state[table].location for table in tables if table in state}
        cursor = {"seen": contents, "locations": locations, "number": number, "at": stamp(now)}
        return Step(one, cursor, (entry(one, f"#{number}", reads_sources=False),))

    def _is_open(self, one: Standing) -> bool:
        """Tell whether a run of a schedule waits or goes on: what changes meanwhile is taken by the next."""
        states = run_queue.OPEN
        return bool(
            self._store.db.read(lambda c: run_queue.entries(c, states=states, cause=cause_of(one.name), limit=1))
        )

    def _is_enough(self, one: Standing, tables: "Iterable[TableName]", state: "State") -> bool:
        """Tell whether rows or bytes changed by as much as a schedule waits for."""
        wanted = {key: one.declared[key] for key in ("min_rows", "min_bytes") if one.declared.get(key)}
        if not wanted:
            return True
        found = {"min_rows": 0, "min_bytes": 0}
        for table in tables:
            if table in state:
                rows, size = _moved(self._store, table, one.cursor.get("locations", {}).get(str(table)), state)
                found["min_rows"] += rows
                found["min_bytes"] += size
        return any(found[key] >= least for key, least in wanted.items())


def timed(one: Standing, now: datetime) -> Step | None:
    """Return how a schedule with times goes on, or None where nothing is due. Pure."""
    declared = one.declared
    after = moment(one.cursor.get("slot", one.seen_at))
    found = due(declared.get("cron"), declared.get("tz"), declared.get("every"), after, now, MOST)
    if not found:
        return None
    policy = declared.get("catch_up", "last")
    taken = found if policy == "all" else found[-1:]
    if policy == "none" and now - found[-1] > _LATE:
        taken = []
    if policy != "all" and len(found) == MOST:
        taken = []  # there are more, and only the last counts
    cursor = {"slot": stamp(found[-1])}
    return Step(one, cursor, tuple(entry(one, f"{at:%Y-%m-%dT%H:%M:%SZ}") for at in taken))


def entry(one: Standing, slot: str, *, reads_sources: bool = True) -> run_queue.Entry:
    """Return what a schedule queues for one of its times or changes."""
    declared: Mapping[str, Any] = one.declared
    timeout = declared.get("timeout")
    wish = {
        "select": [declared["select"]] if declared.get("select") else [],
        "reads_sources": reads_sources,
        "schedule": one.name,
        "due": slot,
    }
    return run_queue.Entry(
        wish,
        _AUTHOR,
        branch=str(declared.get("branch", "main")),
        cause=cause_of(one.name),
        slot=f"{cause_of(one.name)}/{one.seen_at}/{slot}" if slot.startswith("#") else f"{cause_of(one.name)}/{slot}",
        priority=int(declared.get("priority", 0)),
        retries=int(declared.get("retries", 2)),
        timeout_seconds=seconds_of(timeout) if timeout else None,
    )


def _traced(step: Step) -> Step:
    """Return how a schedule goes on; its runs belong to the trace of this decision."""
    if not step.entries or not tracing.is_on():
        return step
    name, entries = step.standing.name, step.entries
    with tracing.span(f"schedule {name}", schedule=name, runs=len(entries), due=entries[-1].wish["due"]) as mark:
        return replace(step, entries=tuple(replace(one, wish={**one.wish, "trace": mark.trace}) for one in entries))


def cause_of(name: str) -> str:
    """Return how the queue names a schedule."""
    return f"schedule/{name}"


def _is_too_soon(one: Standing, now: datetime) -> bool:
    """Tell whether a schedule has to rest a little longer; a clock that went back ends the rest."""
    rest, last = one.declared.get("at_most_every"), one.cursor.get("at")
    if not rest or not last:
        return False
    return moment(last) <= now < moment(last) + timedelta(seconds=seconds_of(rest))


def _moved(store: "Store", table: TableName, before: str | None, state: "State") -> tuple[int, int]:
    """Return how many rows and bytes came or went since a version, or how many there are where it is not known."""
    from runnel.lake.diff.change_size import movement, size

    after = state[table].location
    if before is None:
        whole = size(store, after)
        return (whole.rows or 0, whole.bytes) if whole is not None else (0, 0)
    moved = movement(store, table, before, after)
    if not moved.is_known:
        return _ENOUGH, _ENOUGH  # the older version is gone
    return moved.rows_added + moved.rows_removed, moved.bytes_added + moved.bytes_removed
