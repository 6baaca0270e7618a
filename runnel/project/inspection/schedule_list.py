"""The schedules of a project: when each is due next, and how its last run went."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError
from runnel.lake.catalog.database import moment, stamp
from runnel.lake.control import run_queue, schedules
from runnel.project.inspection.schedule_times import times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.engine import Connection

    from runnel.client.lake import Lake
    from runnel.lake.control.schedules import Standing


@dataclass(frozen=True)
class Line:
    """One schedule. `next_at` is None if only a change makes it due, or it is paused, or `problem` says why not."""

    name: str
    when: str
    select: str
    branch: str
    next_at: str | None
    is_paused: bool
    paused_by: str | None
    last_run: str | None = None
    last_state: str | None = None
    last_at: str | None = None
    problem: str | None = None

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return asdict(self)


def timetable(lake: "Lake") -> list[Line]:
    """Return all schedules that the project's files declare, with how far each has come as the catalog knows it."""
    from runnel.project.planning.plan_project import flow_of

    declared, now = [one.json() for one in flow_of(lake).schedules], datetime.now(UTC)
    with lake.store.db.reading() as connection:
        recorded = {schedule.name: schedule for schedule in schedules.standing(connection)}
        unrecorded = {
            str(options["name"]): schedules.Standing(str(options["name"]), options, {}, "{}", stamp(now))
            for options in declared
        }
        return [line_of(connection, recorded.get(name, schedule), now) for name, schedule in sorted(unrecorded.items())]


def pause(lake: "Lake", name: str, *, resume: bool = False) -> Line:
    """Let a schedule queue nothing until it is resumed, or resume it."""
    store, now = lake.store, datetime.now(UTC)
    found = schedules.pause(store.db, name, store.author, resume=resume)
    return store.db.read(lambda connection: line_of(connection, found, now))


def line_of(connection: "Connection", one: "Standing", now: datetime) -> Line:
    """Return one schedule with when it is due next, and how its last run went."""
    ran = run_queue.entries(connection, cause=f"schedule/{one.name}", limit=1)
    last = ran[0] if ran else None
    next_at, problem = _next(one, now)
    return Line(
        one.name,
        _when(one.declared),
        str(one.declared.get("select", "")),
        str(one.declared.get("branch", "main")),
        None if one.paused_at else next_at,
        one.paused_at is not None,
        one.paused_by,
        last.id if last else None,
        last.state if last else None,
        (last.ended_at or last.started_at or last.queued_at) if last else None,
        problem,
    )


def _next(schedule: "Standing", now: datetime) -> tuple[str | None, str | None]:
    """Return when a schedule is due next, and what is wrong with it; one that can't be read hides no other."""
    after = max(now, moment(schedule.cursor["slot"])) if "slot" in schedule.cursor else now
    declared = schedule.declared
    try:
        coming = next(times(declared.get("cron"), declared.get("tz"), declared.get("every"), after), None)
    except RunnelError as error:
        return None, error.what
    return (stamp(coming) if coming else None), None


def _when(declared: "Mapping[str, Any]") -> str:
    if declared.get("cron"):
        return f"{declared['cron']} {declared.get('tz', 'UTC')}"
    if declared.get("every"):
        return f"every {declared['every']}"
    return f"when {', '.join(declared.get('on_change', ()))} changes"
