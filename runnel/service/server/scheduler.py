"""Queue the runs of schedules, exactly one for each due time.

The transaction that queues a run also advances the schedule's cursor, and only from the position that was read. So
several schedulers over one lake, clock jumps and crashes neither lose a due time nor queue it twice.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from runnel.declare.options.duration import parse_duration
from runnel.errors import RunnelError, Unreachable
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.control import queue_entry, run_queue, schedules
from runnel.lake.control.schedules import ScheduleAdvance, ScheduleRecord
from runnel.model.run_request import RunRequest
from runnel.model.schedule_slot import ScheduleSlot
from runnel.names import TableName
from runnel.project.inspection.schedule_times import list_due_times
from runnel.telemetry import tracing

if TYPE_CHECKING:
    from runnel.lake.history.commits import LakeState
    from runnel.lake.store import Store

LOG = logging.getLogger("runnel.scheduler")
MAX_TIMES = 500  # due times of one schedule that are handled at once
_LATE_POLL = timedelta(minutes=1)  # a longer pause between two polls counts as time when the service was not running
_POLL_TOLERANCE = timedelta(seconds=5)  # after such a pause, an older due time was missed
_AUTHOR = "scheduler"
_ABOVE_ANY_MINIMUM = 1 << 62


@dataclass(frozen=True)
class ScheduleProblem:
    """Why a schedule queues nothing. `is_transient`: some system can't be reached, which may end by itself."""

    schedule: str
    what: str
    since: str
    fix: str
    is_transient: bool = False


class Scheduler:
    """The schedules of a lake. `are_declared` returns whether the catalog matches the current flow files."""

    def __init__(
        self,
        store: "Store",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        are_declared: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._are_declared = are_declared
        self._clock = clock
        self._polled_at = clock()  # the times before were missed
        self._problems: dict[str, ScheduleProblem] = {}

    @property
    def problems(self) -> "dict[str, ScheduleProblem]":
        """Return the schedules that could not be read at the last tick, by name, and why."""
        return dict(self._problems)

    def queue_due_runs(self) -> list[str]:
        """Queue all runs that are due now, and return their ids; none until the catalog's schedules are current."""
        if not self._are_declared():
            return []
        now = self._clock()
        active_schedules = [
            schedule for schedule in self._store.db.read(schedules.list_schedules) if schedule.paused_at is None
        ]
        advances = [
            advance for schedule in active_schedules if (advance := self._advance_schedule(schedule, now)) is not None
        ]
        names = {schedule.name for schedule in active_schedules}
        self._problems = {name: problem for name, problem in self._problems.items() if name in names}
        queued_ids = schedules.advance(self._store.db, advances)
        self._polled_at = now
        return queued_ids

    def _find_watch_start(self, now: datetime) -> datetime:
        """Return since when the scheduler has been watching the clock without a long pause."""
        is_recent = timedelta() <= now - self._polled_at <= _LATE_POLL
        return self._polled_at if is_recent else now - _POLL_TOLERANCE

    def _advance_schedule(self, schedule: ScheduleRecord, now: datetime) -> ScheduleAdvance | None:
        """Return the advance of a schedule, or None; a schedule that can't be read doesn't block the others."""
        try:
            advance = (
                self._advance_on_change(schedule, now)
                if schedule.declared.get("on_change")
                else advance_on_time(schedule, now, self._find_watch_start(now))
            )
            advance = _add_trace(advance) if advance is not None else None
        except Exception as error:  # a defect, too: it must not stop the other schedules
            self._note_problem(schedule.name, error, now)
            return None
        self._problems.pop(schedule.name, None)
        return advance

    def _note_problem(self, name: str, error: Exception, now: datetime) -> None:
        """Remember why a schedule queues nothing, and since when; log each error once."""
        previous = self._problems.get(name)
        what = error.what if isinstance(error, RunnelError) else f"{type(error).__name__}: {error}"
        if previous is None or previous.what != what:
            LOG.error("schedule %s: %s", name, error, exc_info=error)
        since = previous.since if previous is not None else format_time(now)
        fix = error.fix if isinstance(error, RunnelError) else "this is a defect of Runnel; `service.log` has the trace"
        self._problems[name] = ScheduleProblem(name, what, since, fix or "", isinstance(error, Unreachable))

    def _advance_on_change(self, schedule: ScheduleRecord, now: datetime) -> ScheduleAdvance | None:
        """Return the advance after a change of the schedule's tables, if it is large enough and not too soon."""
        branch = str(schedule.declared.get("branch", "main"))
        state = self._store.state(branch)
        tables = [TableName.parse(name) for name in schedule.declared["on_change"]]
        contents = {str(table): state[table].content for table in tables if table in state}
        seen_contents = schedule.cursor.get("seen", {})
        if not contents or contents == seen_contents:
            return None
        if (
            _is_too_soon(schedule, now)
            or not self._has_enough_changes(schedule, tables, state)
            or self._has_open_run(schedule)
        ):
            return None
        number = int(schedule.cursor.get("number", 0)) + 1
        locations = {str(table): state[table].location for table in tables if table in state}
        cursor = {"seen": contents, "locations": locations, "number": number, "at": format_time(now)}
        return ScheduleAdvance(schedule, cursor, (build_request(schedule, number, reads_sources=False),))

    def _has_open_run(self, schedule: ScheduleRecord) -> bool:
        """Return whether a run of the schedule is queued or running: the next run handles later changes."""
        states = queue_entry.OPEN_STATES
        return bool(
            self._store.db.read(
                lambda c: run_queue.list_entries(c, states=states, cause=format_cause(schedule.name), limit=1)
            )
        )

    def _has_enough_changes(self, schedule: ScheduleRecord, tables: "Iterable[TableName]", state: "LakeState") -> bool:
        """Return whether at least `min_rows` rows or `min_bytes` bytes of the schedule's tables changed."""
        minimums = {key: schedule.declared[key] for key in ("min_rows", "min_bytes") if schedule.declared.get(key)}
        if not minimums:
            return True
        changed = {"min_rows": 0, "min_bytes": 0}
        for table in tables:
            if table in state:
                rows, size = _measure_change(
                    self._store, table, schedule.cursor.get("locations", {}).get(str(table)), state
                )
                changed["min_rows"] += rows
                changed["min_bytes"] += size
        return any(changed[key] >= minimum for key, minimum in minimums.items())


def advance_on_time(schedule: ScheduleRecord, now: datetime, watched_since: datetime) -> ScheduleAdvance | None:
    """Return the advance of a schedule with times, or None if nothing is due. Pure.

    A time before `watched_since` was missed: with `catch_up="none"` it is not run.
    """
    declared = schedule.declared
    after = parse_time(schedule.cursor.get("slot", schedule.seen_at))
    times_due = list_due_times(
        declared.get("cron"), declared.get("tz"), declared.get("every"), after, now, limit=MAX_TIMES
    )
    if not times_due:
        return None
    policy = declared.get("catch_up", "last")
    times_to_queue = times_due if policy == "all" else times_due[-1:]
    if policy == "none" and times_due[-1] < watched_since:
        times_to_queue = []
    if policy != "all" and len(times_due) == MAX_TIMES:
        times_to_queue = []  # there are more, and only the last counts
    cursor = {"slot": format_time(times_due[-1])}
    return ScheduleAdvance(schedule, cursor, tuple(build_request(schedule, due_at) for due_at in times_to_queue))


def build_request(
    schedule: ScheduleRecord, due: datetime | int, *, reads_sources: bool = True
) -> queue_entry.QueueRequest:
    """Return the queue request of a schedule for one of its due times, or for the number of a change."""
    declared: Mapping[str, Any] = schedule.declared
    timeout, cause = declared.get("timeout"), format_cause(schedule.name)
    schedule_slot = ScheduleSlot(schedule.name, due)
    request = RunRequest(
        (declared["select"],) if declared.get("select") else (),
        branch=str(declared.get("branch", "main")),
        reads_sources=reads_sources,
    )
    return queue_entry.QueueRequest(
        request,
        _AUTHOR,
        cause=cause,
        slot=f"{cause}/{schedule_slot.due_text}"
        if schedule_slot.is_timed
        else f"{cause}/{schedule.seen_at}/{schedule_slot.due_text}",
        priority=int(declared.get("priority", 0)),
        retries=int(declared.get("retries", 2)),
        timeout_seconds=parse_duration(timeout) if timeout else None,
        schedule_slot=schedule_slot,
    )


def _add_trace(advance: ScheduleAdvance) -> ScheduleAdvance:
    """Return the advance with its runs attached to the trace of this scheduling decision."""
    if not advance.entries or not tracing.is_enabled():
        return advance
    name, entries, last_slot = advance.schedule.name, advance.entries, advance.entries[-1].schedule_slot
    due_text = last_slot.due_text if last_slot is not None else None
    with tracing.span(f"schedule {name}", schedule=name, runs=len(entries), due=due_text) as span:
        return replace(advance, entries=tuple(replace(request, trace=span.traceparent) for request in entries))


def format_cause(name: str) -> str:
    """Return the cause under which the queue lists runs of a schedule."""
    return f"schedule/{name}"


def _is_too_soon(schedule: ScheduleRecord, now: datetime) -> bool:
    """Return whether `at_most_every` has not yet passed since the last run; a clock set back ends the wait."""
    min_interval, last_at = schedule.declared.get("at_most_every"), schedule.cursor.get("at")
    if not min_interval or not last_at:
        return False
    return parse_time(last_at) <= now < parse_time(last_at) + timedelta(seconds=parse_duration(min_interval))


def _measure_change(store: "Store", table: TableName, before: str | None, state: "LakeState") -> tuple[int, int]:
    """Return how many rows and bytes were added or removed since a version; without one, the size of the table."""
    from runnel.lake.diff.change_size import measure_change, read_table_size

    after = state[table].location
    if before is None:
        table_size = read_table_size(store, after)
        return (table_size.rows or 0, table_size.bytes) if table_size is not None else (0, 0)
    change = measure_change(store, table, before, after)
    if not change.is_known:
        return _ABOVE_ANY_MINIMUM, _ABOVE_ANY_MINIMUM  # the older version was deleted
    return change.rows_added + change.rows_removed, change.bytes_added + change.bytes_removed
