"""What a service answers as the values that an embedded lake returns. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from runnel.lake.control.alarms import Alarm
from runnel.lake.control.notifications import Telling
from runnel.lake.control.workers import Worker
from runnel.lake.diff.lake_diff import TableDiff
from runnel.lake.files.ls import FileRow
from runnel.lake.flow_state.runs import Run
from runnel.lake.history.branches import Branch
from runnel.lake.history.commits import Change, Commit, Version
from runnel.lake.history.tags import Tag
from runnel.names import TableName
from runnel.plan.slices import Slices
from runnel.plan.steps import Plan, Step
from runnel.project.inspection.alarms import Open
from runnel.project.inspection.schedule_list import Line
from runnel.project.inspection.stream_health import Health

Json = Mapping[str, Any]
_SAME = ("seq", "line", "branch", "parent", "merged", "kind", "author", "message", "run", "at", "expired_at")


def commit_of(found: Json) -> Commit:
    """Return a commit."""
    return Commit(id=found["commit"], **{name: found[name] for name in _SAME})


def changes_of(found: Json) -> tuple[Change, ...]:
    """Return what a commit did to each table."""
    return tuple(
        Change(TableName.stored(one["table"]), one["before"], one["after"], one["content"], one["detail"])
        for one in found["changes"]
    )


def branch_of(found: Json) -> Branch:
    """Return a branch."""
    return Branch(found["branch"], found["line"], found["head"], found["created_at"], found["author"], found["from"])


def tag_of(found: Json) -> Tag:
    """Return a tag."""
    return Tag(found["tag"], found["commit"], found["author"], found["at"])


def table_diff_of(found: Json) -> TableDiff:
    """Return how one table differs."""
    return TableDiff(
        TableName.stored(found["table"]),
        found["change"],
        tuple(found["schema"]),
        found["rows_added"],
        found["rows_removed"],
        found["reason"],
    )


def plan_of(found: Json) -> Plan:
    """Return a plan: what would be done to which table, and why."""
    steps = tuple(_step(one) for one in found["steps"])
    return Plan(found["branch"], found["commit"], steps, found["jvm"], tuple(found["notes"]))


def _step(found: Json) -> Step:
    return Step(
        TableName.stored(found["table"]),
        found["action"],
        found["reason"],
        slices=_slices(found["slices"]) if found["slices"] else None,
        rows=found["rows"],
        bytes=found["bytes"],
        is_expected=found["expected"],
        analyse=found["analyse"],
    )


def _slices(found: Json) -> Slices:
    """Return slices; of very many only the number is known, and the step's reason tells it."""
    keys = found["keys"]
    if keys is None or found["changed"] != len(keys):
        return Slices(None, found["of"])
    return Slices(tuple(tuple(key) if isinstance(key, list) else (key,) for key in keys), found["of"])


def run_of(found: Json) -> Run:
    """Return a run, as far as it is told: of one that was asked for by itself everything."""
    told = {"code_id": found.get("code"), "git": found.get("git"), "packages": found.get("packages")}
    detail = {name: value for name, value in told.items() if value is not None}
    detail |= {"cause": found.get("cause") or "user", "tables": found["tables"], "steps": found.get("steps", [])}
    started = found["started_at"] or found.get("queued_at") or ""
    return Run(
        found["run"],
        found["branch"],
        found["state"],
        found["author"],
        started,
        found["ended_at"],
        found["commit"],
        {**detail, "error": found.get("error")},
    )


def file_of(found: Json) -> FileRow:
    """Return a file of a table."""
    return FileRow(found["path"], found["size"], moment_of(found["modified_at"]), found["sha256"])


def worker_of(found: Json) -> Worker:
    """Return a process that works for the lake."""
    name, detail = found["worker"], found["detail"]
    return Worker(name, found["kind"], "", found["state"], found["started_at"], found["renewed_at"], detail)


def health_of(found: Json) -> Health:
    """Return how a stream is."""
    told = {name: found[name] for name in Health.__dataclass_fields__}
    return Health(**{**told, "table": TableName.stored(found["table"]), "warnings": tuple(found["warnings"])})


def alarm_of(found: Json) -> Open:
    """Return something that is wrong, and whom it was told."""
    names = ("kind", "what", "since", "level", "fix", "run", "over_at")
    told_of = {name: found[name] for name in names}
    alarm = Alarm(found["alarm"], **told_of, tables=tuple(found["tables"]), blocks=tuple(found["blocks"]))
    told = tuple(
        Telling(alarm, one["alert"], alarm.word, one["tries"], "", one["told_at"], one["problem"])
        for one in found["told"]
    )
    return Open(alarm, told)


def line_of(found: Json) -> Line:
    """Return a schedule."""
    return Line(**{name: found[name] for name in Line.__dataclass_fields__ if name in found})


def version_of(found: Json) -> Version:
    """Return what a table is at a commit."""
    return Version(found["location"], found["content"])


def moment_of(text: str | None) -> datetime | None:
    """Return a time."""
    return datetime.fromisoformat(text) if text is not None else None


def texts(given: Any) -> list[str]:
    """Return one or several selections as a list."""
    return [given] if isinstance(given, str) else [str(one) for one in cast("list[str]", given)]
