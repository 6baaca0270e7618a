"""Build alarms for streams, schedules, sinks, missing workers, unread rows and full disks. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from runnel.errors import plural
from runnel.lake.catalog.database import format_time
from runnel.lake.control.alarms import Alarm

if TYPE_CHECKING:
    from runnel.lake.control.declarations import ProjectDeclarations
    from runnel.lake.control.queue_entry import QueueEntry
    from runnel.lake.flow_state.sink_positions import SinkPosition
    from runnel.lake.flow_state.streams import StreamRecord
    from runnel.project.inspection.backlog import ReaderBacklog
    from runnel.service.server.scheduler import ScheduleProblem

BACKLOG_KEY = "worker/backlog"
_FAILING_STATES = ("failed", "waiting")
_MAX_NAMED = 5  # streams and sources in a message


def find_stream_alarms(streams: "Iterable[StreamRecord]", declared: "ProjectDeclarations") -> list[Alarm]:
    """Return an alarm for each stream or continuously read source that has failed or waits."""
    stream_alarms = []
    for stream in streams:
        table = str(stream.table)
        if stream.state not in _FAILING_STATES or table not in declared.tables:
            continue
        branch_prefix = "" if stream.branch == "main" else f"{stream.branch}/"
        problem, _, fix = (stream.problem or "the cause is unknown").partition("\n  fix: ")
        subject = f"the source `{table}`" if table in declared.sources else f"the stream of `{table}`"
        what = f"{subject} {'waits' if stream.state == 'waiting' else 'has failed'}: {_first_line(problem)}"
        fix_text = (
            f"{_first_line(fix)}; it continues automatically then"
            if fix
            else "it continues automatically once that is fixed"
        )
        key = f"stream/{branch_prefix}{table}"
        stream_alarms.append(
            Alarm(key, "stream", what, stream.since, "alarm", (table,), tuple(declared.find_blocked([table])), fix_text)
        )
    return stream_alarms


def find_schedule_alarms(problems: "Iterable[ScheduleProblem]", declared: "ProjectDeclarations") -> list[Alarm]:
    """Return an alarm for each schedule that can't be read and therefore queues nothing."""
    schedule_alarms = []
    for problem in problems:
        tables = tuple(name for name, table in declared.tables.items() if problem.schedule in table.schedules)
        what = f"schedule `{problem.schedule}` queues nothing: {_first_line(problem.what)}"
        fix = problem.fix or "correct it in its flow file; it continues automatically then"
        key, blocks = f"schedule/{problem.schedule}", tuple(declared.find_blocked(tables))
        schedule_alarms.append(Alarm(key, "schedule", what, problem.since, "alarm", tables, blocks, fix))
    return schedule_alarms


def find_undeclared_alarm(schedules: "Sequence[str]", now: datetime) -> list[Alarm]:
    """Return an alarm if schedules wait for a worker to load the flow files."""
    if not schedules:
        return []
    number = len(schedules)
    what = (
        f"{plural(number, 'schedule')} {'waits' if number == 1 else 'wait'}: no worker has loaded the flow files so far"
    )
    fix = "`runnel validate` shows their mistakes; `runnel status` shows the state of the workers"
    return [Alarm("flows", "worker", what, format_time(now), fix=fix)]


def find_sink_alarms(delivery_states: "Mapping[str, SinkPosition]", declared: "ProjectDeclarations") -> list[Alarm]:
    """Return an alarm for each sink that fails."""
    sink_alarms = []
    for name, sink in declared.sinks.items():
        state = delivery_states.get(name)
        if state is None or state.failing_since is None:
            continue
        what = f"the sink `{name}` of `{sink.table}` fails: {_first_line(state.problem or 'the cause is unknown')}"
        fix = "fix it: the next run then delivers what was published meanwhile; `runnel sinks deliver` does so at once"
        sink_alarms.append(Alarm(f"sink/{name}", "sink", what, state.failing_since, "alarm", (sink.table,), (), fix))
    return sink_alarms


def find_worker_alarm(
    queued: "Iterable[QueueEntry]", worker_count: int, paused_causes: frozenset[str], now: str
) -> list[Alarm]:
    """Return an alarm if runs are ready and no worker is running."""
    ready = [entry for entry in queued if entry.cause not in paused_causes and entry.not_before <= now]
    if worker_count or not ready:
        return []
    since = min(max(entry.queued_at, entry.not_before) for entry in ready)
    what = (
        f"no worker is running, and {plural(len(ready), 'run')} {'waits' if len(ready) == 1 else 'wait'} in the queue"
    )
    fix = "`runnel up` or `runnel worker` starts one; `.runnel/logs/worker.log` says why it ended"
    return [Alarm("worker", "worker", what, since, fix=fix)]


def find_backlog_alarm(
    readers: "Iterable[ReaderBacklog]", declared: "ProjectDeclarations", worker_count: int, now: str
) -> list[Alarm]:
    """Return an alarm if events, rows or files wait for streams and sources, and no worker is running to read them."""
    waiting = [
        reader for reader in readers if reader.backlog.is_empty is False and str(reader.record.table) in declared.tables
    ]
    if worker_count or not waiting:
        return []
    texts = [_describe_waiting(reader) for reader in waiting[:_MAX_NAMED]]
    if len(waiting) > _MAX_NAMED:
        texts.append(f"{len(waiting) - _MAX_NAMED:,} more streams and sources have unread rows")
    what = f"no worker is running, and {'; '.join(texts)}"
    since = min(reader.backlog.since or now for reader in waiting)
    tables = tuple(dict.fromkeys(str(reader.record.table) for reader in waiting))
    fix = "`runnel up` or `runnel worker` starts one, which reads them; `runnel status` shows how many there are"
    return [Alarm(BACKLOG_KEY, "worker", what, since, "alarm", tables, tuple(declared.find_blocked(tables)), fix)]


def _describe_waiting(reader: "ReaderBacklog") -> str:
    """Return how much waits for a stream or source, such as "120 rows wait for the source `ods.events`"."""
    record, backlog = reader.record, reader.backlog
    count, noun = (backlog.rows, "row") if backlog.rows is not None else (backlog.files, "file")
    amount = plural(count, noun) if count is not None else "rows"
    seen = f", seen at {_format_time(backlog.looked_at)}," if backlog.looked_at else ""
    subject = f"the source `{record.table}`" if reader.kind == "source" else f"the stream of `{record.table}`"
    branch = "" if record.branch == "main" else f" on `{record.branch}`"
    return f"{amount}{seen} {'waits' if count == 1 else 'wait'} for {subject}{branch}"


def find_disk_alarm(queued: "Iterable[QueueEntry]") -> list[Alarm]:
    """Return an alarm if runs wait because a disk is full."""
    failures = [(entry, error) for entry in queued if (error := _find_disk_full_error(entry)) is not None]
    if not failures:
        return []
    number, what = len(failures), failures[0][1].get("what") or "no space left on device"
    message = f"a disk is full, and {plural(number, 'run')} {'waits' if number == 1 else 'wait'} for space: {what}"
    fix = "free some space: the service tries them again, at least every two minutes"
    return [Alarm("disk", "disk", message, min(entry.queued_at for entry, _ in failures), fix=fix)]


def _find_disk_full_error(entry: "QueueEntry") -> "Mapping[str, str | None] | None":
    """Return the disk-full error of a run's last attempt, or None."""
    outcome = entry.outcome or {}
    errors = [outcome.get("error"), *(step.get("error") for step in outcome.get("steps", ()))]
    return next((error for error in errors if error and error.get("kind") == "NoRoom"), None)


def _format_time(at: str) -> str:
    return f"{at[:19].replace('T', ' ')} UTC"


def _first_line(text: str) -> str:
    """Return the first line of a message, without its error code."""
    first = next(iter(text.strip().splitlines()), "")
    code, colon, message = first.partition(": ")
    return message if colon and code.isupper() else first
