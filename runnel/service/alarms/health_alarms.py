"""Alarms of what goes on by itself: streams, sinks, a queue that nobody works off, a full disk. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from runnel.lake.catalog.database import stamp
from runnel.lake.control.alarms import Alarm

if TYPE_CHECKING:
    from runnel.lake.control.declarations import Declared
    from runnel.lake.control.run_queue import Queued
    from runnel.lake.flow_state.sink_positions import Delivered
    from runnel.lake.flow_state.streams import Stream
    from runnel.service.server.scheduler import Problem

_BAD = ("failed", "waiting")


def streams_wrong(found: "Iterable[Stream]", declared: "Declared") -> list[Alarm]:
    """Return an alarm for each stream, or source that is read on and on, that has failed or waits."""
    wrong = []
    for one in found:
        table = str(one.table)
        if one.state not in _BAD or table not in declared.tables:
            continue
        where = "" if one.branch == "main" else f"{one.branch}/"
        problem, _, fix = (one.problem or "nobody knows why").partition("\n  fix: ")
        what = f"the stream of `{table}` {'waits' if one.state == 'waiting' else 'has failed'}: {_line(problem)}"
        told = f"{_line(fix)}; it goes on by itself then" if fix else "it goes on by itself once that is mended"
        key = f"stream/{where}{table}"
        wrong.append(Alarm(key, "stream", what, one.since, "alarm", (table,), tuple(declared.blocked([table])), told))
    return wrong


def schedules_wrong(problems: "Iterable[Problem]", declared: "Declared") -> list[Alarm]:
    """Return an alarm for each schedule that can't be read, and so queues nothing."""
    wrong = []
    for problem in problems:
        tables = tuple(name for name, table in declared.tables.items() if problem.schedule in table.schedules)
        what = f"schedule `{problem.schedule}` queues nothing: {_line(problem.what)}"
        fix = problem.fix or "correct it in its flow file; it goes on by itself then"
        key, blocks = f"schedule/{problem.schedule}", tuple(declared.blocked(tables))
        wrong.append(Alarm(key, "schedule", what, problem.since, "alarm", tables, blocks, fix))
    return wrong


def schedules_unknown(schedules: "Sequence[str]", now: datetime) -> list[Alarm]:
    """Return an alarm where schedules wait for a worker to say what the flow files declare."""
    if not schedules:
        return []
    number = len(schedules)
    what = f"{number} schedule{' waits' if number == 1 else 's wait'}: no worker has loaded the flow files so far"
    fix = "`runnel validate` shows their mistakes; `runnel status` says how the workers are"
    return [Alarm("flows", "worker", what, stamp(now), fix=fix)]


def sinks_wrong(found: "Mapping[str, Delivered]", declared: "Declared") -> list[Alarm]:
    """Return an alarm for each sink that fails."""
    wrong = []
    for name, fed in declared.sinks.items():
        state = found.get(name)
        if state is None or state.failing_since is None:
            continue
        what = f"the sink `{name}` of `{fed.table}` fails: {_line(state.problem or 'nobody knows why')}"
        fix = "mend it: what was published meanwhile is delivered then; `runnel sinks deliver` does so at once"
        wrong.append(Alarm(f"sink/{name}", "sink", what, state.failing_since, "alarm", (fed.table,), (), fix))
    return wrong


def nobody_works(waiting: "Iterable[Queued]", workers: int, paused: frozenset[str], now: str) -> list[Alarm]:
    """Return an alarm where something could be run, and nobody is there to run it."""
    ready = [one for one in waiting if one.cause not in paused and one.not_before <= now]
    if workers or not ready:
        return []
    since = min(max(one.queued_at, one.not_before) for one in ready)
    what = f"no worker is there, and {len(ready)} run{' waits' if len(ready) == 1 else 's wait'} in the queue"
    fix = "`runnel up` or `runnel worker` starts one; `.runnel/logs/worker.log` says why it ended"
    return [Alarm("worker", "worker", what, since, fix=fix)]


def no_room_left(waiting: "Iterable[Queued]") -> list[Alarm]:
    """Return an alarm where runs wait for room on a disk."""
    found = [(one, error) for one in waiting if (error := _full(one)) is not None]
    if not found:
        return []
    number, what = len(found), found[0][1].get("what") or "no space left on device"
    told = f"a disk is full, and {number} run{' waits' if number == 1 else 's wait'} for room: {what}"
    fix = "free some space: they are tried again by themselves, every two minutes at least"
    return [Alarm("disk", "disk", told, min(one.queued_at for one, _ in found), fix=fix)]


def _full(one: "Queued") -> "Mapping[str, str | None] | None":
    """Return the error of a run that found no room when it was last tried."""
    outcome = one.outcome or {}
    errors = [outcome.get("error"), *(step.get("error") for step in outcome.get("steps", ()))]
    return next((error for error in errors if error and error.get("kind") == "NoRoom"), None)


def _line(text: str) -> str:
    """Return the first line that says something; the code of an error is not for people."""
    first = next(iter(text.strip().splitlines()), "")
    code, colon, rest = first.partition(": ")
    return rest if colon and code.isupper() else first
