"""Alarms of runs that failed. Pure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from runnel.lake.control.alarms import Alarm

if TYPE_CHECKING:
    from runnel.lake.control.declarations import Declared
    from runnel.service.alarms.run_outcomes import Ended

_SCHEDULE = "schedule/"


def failures(
    failed: "Iterable[Ended]", declared: "Declared", schedules: Iterable[str], made: Mapping[str, str]
) -> list[Alarm]:
    """Return an alarm for each run that failed and is not mended. `made`: when tables were last, on main."""
    known = {f"{_SCHEDULE}{name}" for name in schedules}
    found = []
    for one in failed:
        is_gone = one.cause.startswith(_SCHEDULE) and one.cause not in known
        if not is_gone and not _is_settled(one, declared, made):
            found.append(_alarm(one, declared))
    return found


def _is_settled(one: "Ended", declared: "Declared", made: Mapping[str, str]) -> bool:
    """Tell whether all tables that failed were made since, by a run that never was in the queue, or are gone."""
    tables = [table for table, _ in one.failed]
    if not tables or not declared.tables:
        return False
    there = [table for table in tables if table in declared.tables]
    return not there or (one.branch == "main" and all(made.get(table, "") > one.ended_at for table in there))


def _alarm(one: "Ended", declared: "Declared") -> Alarm:
    tables = tuple(name for name, _ in one.failed)
    if not tables and one.cause.startswith(_SCHEDULE):
        name = one.cause.removeprefix(_SCHEDULE)
        tables = tuple(table for table, watched in declared.tables.items() if name in watched.schedules)
    error = one.failed[0][1] if one.failed else one.error or {}
    fixes = [str(error["fix"])] if error.get("fix") else []
    fixes += [f"`runnel logs {one.run}` says more", f"`runnel retry {one.id}` runs it again"]
    blocks = tuple(declared.blocked(tables))
    return Alarm(one.key, "failed", _what(one), one.ended_at, "alarm", tables, blocks, "; ".join(fixes), one.run)


def _what(one: "Ended") -> str:
    if one.cause == "user":
        name = f"the run of {one.select or 'everything'}"
    else:
        kind, _, which = one.cause.partition("/")
        name = f"{kind} `{which}`"
    where = "" if one.branch == "main" else f" on `{one.branch}`"
    if not one.failed:
        return f"{name} failed{where}: {(one.error or {}).get('what') or 'nobody knows why'}"
    table, error = one.failed[0]
    more = len(one.failed) - 1
    others = f", and {more} more table{'' if more == 1 else 's'}" if more else ""
    return f"{name} failed{where}: `{table}`: {error.get('what') or 'nobody knows why'}{others}"
