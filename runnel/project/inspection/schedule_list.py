"""List the schedules of a project: when each is due next, and how its last run ended."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runnel.errors import RunnelError
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.control import run_queue, schedules, workers
from runnel.project.inspection.schedule_times import iter_schedule_times, list_due_times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.engine import Connection

    from runnel.client.lake import Lake
    from runnel.lake.control.schedules import ScheduleRecord

_MAX_MISSED = 1000  # times that are counted: a schedule may be due each second, and the service be down for months


@dataclass(frozen=True)
class ScheduleStatus:
    """One schedule. `next_at` is None if only a change makes it due, or it is paused, or `problem` says why not.

    Without a running service (`has_service`), nothing is queued at that time. `missed` counts the times that passed
    since the service stopped, up to 1000 (then `last_missed_at` is None); `catch_up` says which of them the next
    service runs.
    """

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
    has_service: bool = True
    catch_up: str = "last"
    missed: int = 0
    last_missed_at: str | None = None

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return asdict(self)


def list_schedules(lake: "Lake") -> list[ScheduleStatus]:
    """Return all schedules that the project's files declare, with their state from the catalog."""
    from runnel.project.planning.plan_project import load_project_flow

    declared, now = [declaration.json() for declaration in load_project_flow(lake).schedules], datetime.now(UTC)
    with lake.store.db.read_transaction() as connection:
        recorded = {schedule.name: schedule for schedule in schedules.list_schedules(connection)}
        unrecorded = {
            str(options["name"]): schedules.ScheduleRecord(str(options["name"]), options, {}, "{}", format_time(now))
            for options in declared
        }
        return [
            build_schedule_status(connection, recorded.get(name, schedule), now)
            for name, schedule in sorted(unrecorded.items())
        ]


def pause_schedule(lake: "Lake", name: str, *, resume: bool = False) -> ScheduleStatus:
    """Pause a schedule, so that it queues nothing until it is resumed, or resume it."""
    store, now = lake.store, datetime.now(UTC)
    schedule = schedules.pause(store.db, name, store.author, resume=resume)
    return store.db.read(lambda connection: build_schedule_status(connection, schedule, now))


def build_schedule_status(connection: "Connection", schedule: "ScheduleRecord", now: datetime) -> ScheduleStatus:
    """Return the status of a schedule: when it is due next, and how its last run ended."""
    entries = run_queue.list_entries(connection, cause=f"schedule/{schedule.name}", limit=1)
    last_entry = entries[0] if entries else None
    next_at, problem = _find_next_time(schedule, now)
    has_service = bool(workers.list_alive(connection, workers.SERVICE))
    missed_times = [] if has_service or schedule.paused_at or problem else _list_missed_times(schedule, now)
    return ScheduleStatus(
        schedule.name,
        _describe_timing(schedule.declared),
        str(schedule.declared.get("select", "")),
        str(schedule.declared.get("branch", "main")),
        None if schedule.paused_at else next_at,
        schedule.paused_at is not None,
        schedule.paused_by,
        last_entry.id if last_entry else None,
        last_entry.state if last_entry else None,
        (last_entry.ended_at or last_entry.started_at or last_entry.queued_at) if last_entry else None,
        problem,
        has_service,
        str(schedule.declared.get("catch_up", "last")),
        len(missed_times),
        format_time(missed_times[-1]) if 0 < len(missed_times) < _MAX_MISSED else None,
    )


def _list_missed_times(schedule: "ScheduleRecord", now: datetime) -> list[datetime]:
    """Return the times that passed and that no service has queued."""
    declared, after = schedule.declared, parse_time(schedule.cursor.get("slot", schedule.seen_at))
    times = (declared.get("cron"), declared.get("tz"), declared.get("every"))
    return list_due_times(*times, after, now, limit=_MAX_MISSED)


def _find_next_time(schedule: "ScheduleRecord", now: datetime) -> tuple[str | None, str | None]:
    """Return when a schedule is due next, or the problem of an invalid one, so that the others are still listed."""
    after = max(now, parse_time(schedule.cursor["slot"])) if "slot" in schedule.cursor else now
    declared = schedule.declared
    try:
        next_time = next(
            iter_schedule_times(declared.get("cron"), declared.get("tz"), declared.get("every"), after), None
        )
    except RunnelError as error:
        return None, error.what
    return (format_time(next_time) if next_time else None), None


def _describe_timing(declared: "Mapping[str, Any]") -> str:
    if declared.get("cron"):
        return f"{declared['cron']} {declared.get('tz', 'UTC')}"
    if declared.get("every"):
        return f"every {declared['every']}"
    return f"when {', '.join(declared.get('on_change', ()))} changes"
