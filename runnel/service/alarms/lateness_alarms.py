"""Alarms of tables that are late, or are forecast to be."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from runnel.declare.options.deadline import deadline_of
from runnel.errors import RunnelError
from runnel.lake.catalog.database import moment, stamp
from runnel.lake.control.alarms import ALARM, WARNING, Alarm
from runnel.project.inspection.schedule_times import is_readable
from runnel.service.alarms.deadlines import Timed, Verdict, judge

if TYPE_CHECKING:
    from runnel.lake.control.declarations import Declared, Watched
    from runnel.lake.control.run_queue import Queued
    from runnel.lake.control.schedules import Standing
    from runnel.service.alarms.run_outcomes import History


def lateness(declared: "Declared", timed: Mapping[str, Timed], made: Mapping[str, str], now: datetime) -> list[Alarm]:
    """Return an alarm or a warning for each table that is not ready in time. `made`: when each was last. Pure."""
    found = []
    for one in with_deadlines(declared):
        blocks = tuple(declared.blocked([one.table]))
        try:
            schedules = [timed[name] for name in one.schedules if name in timed]
            made_at = moment(made[one.table]) if one.table in made else None
            verdict = judge(deadline_of(one.deadline), schedules, made_at, moment(one.since), now)
            if verdict is not None:
                found.append(_alarm(one, verdict, blocks, now))
        except Exception as error:  # one deadline that can't be read must not hide what is wrong with other tables
            found.append(_unreadable(one, error, blocks))
    return found


def _unreadable(one: "Watched", error: Exception, blocks: tuple[str, ...]) -> Alarm:
    reason = error.what if isinstance(error, RunnelError) else f"{type(error).__name__}: {error}"
    what = f"nobody can say whether `{one.table}` is late, its deadline {one.deadline!r} can't be read: {reason}"
    fix = "correct `deadline=` of its task; `runnel validate` checks it"
    return Alarm(f"late/{one.table}", "late", what, one.since, ALARM, (one.table,), blocks, fix)


def with_deadlines(declared: "Declared") -> "list[Watched]":
    """Return the tables that have a deadline."""
    return [one for one in declared.tables.values() if one.deadline is not None]


def timed_of(
    standing: "Iterable[Standing]", history: "History", waiting: "Iterable[Queued]", now: datetime
) -> dict[str, Timed]:
    """Return the schedules on main that can be read, with what their runs took and whether one goes on."""
    begun = {one.cause: moment(one.started_at) if one.state == "running" and one.started_at else now for one in waiting}
    found = {}
    for one in standing:
        declared, cause = one.declared, f"schedule/{one.name}"
        times = (declared.get("cron"), declared.get("tz"), declared.get("every"))
        if declared.get("branch", "main") == "main" and is_readable(*times):
            when = (*times, one.paused_at is not None)
            queued = moment(one.cursor.get("slot", one.seen_at))
            found[one.name] = Timed(one.name, *when, history.seconds(cause) or 0.0, begun.get(cause), queued)
    return found


def _alarm(one: "Watched", verdict: Verdict, blocks: tuple[str, ...], now: datetime) -> Alarm:
    zone = deadline_of(one.deadline).zone or ZoneInfo("UTC")
    by = _shown(verdict.term.by, zone, now)
    if verdict.is_late:
        what = f"`{one.table}` is late: it was to be ready by {by} {zone}"
        what += f", and is forecast for {_shown(verdict.ready_at, zone, now)}" if verdict.ready_at else ""
    else:
        assert verdict.ready_at is not None
        ready = _shown(verdict.ready_at, zone, now)
        what = f"`{one.table}` will be late: forecast ready at {ready}, and its deadline is {by} {zone}"
    fix = f"`runnel runs` says what goes on; `runnel run -s {one.table}` makes it now"
    level, since = (ALARM, verdict.term.by) if verdict.is_late else (WARNING, now)
    return Alarm(f"late/{one.table}", "late", what, stamp(since), level, (one.table,), blocks, fix)


def _shown(at: datetime, zone: ZoneInfo, now: datetime) -> str:
    """Return a time as people read it, with the day where it is not today.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    >>> _shown(noon.replace(day=3), ZoneInfo("Asia/Shanghai"), noon), _shown(noon, ZoneInfo("UTC"), noon)
    ('2026-01-03 20:00', '12:00')
    """
    local = at.astimezone(zone)
    return f"{local:%H:%M}" if local.date() == now.astimezone(zone).date() else f"{local:%Y-%m-%d %H:%M}"
