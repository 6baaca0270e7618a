"""Parse the JSON of a service into the values that an embedded lake returns. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from runnel.lake.control.alarms import Alarm
from runnel.lake.control.notifications import Mute, Notification
from runnel.lake.control.tokens import Token, TokenWithSecret
from runnel.lake.control.workers import WorkerRecord
from runnel.lake.diff.lake_diff import TableDiff
from runnel.lake.files.ls import FileRow
from runnel.lake.flow_state.runs import Run
from runnel.lake.history.branches import Branch
from runnel.lake.history.commits import Commit, CommitChange
from runnel.lake.history.tags import Tag
from runnel.model.table_version import TableVersion
from runnel.names import TableName
from runnel.plan.slices import SliceSelection
from runnel.plan.steps import Plan, PlanStep
from runnel.project.execution.deliver_sinks import SinkState
from runnel.project.inspection.alarms import AlarmStatus
from runnel.project.inspection.lineage import Lineage
from runnel.project.inspection.schedule_list import ScheduleStatus
from runnel.project.inspection.stream_health import StreamHealth
from runnel.run.results.delivery_result import DeliveryResult, parse_delivery_result

Json = Mapping[str, Any]
_COMMIT_FIELDS = ("seq", "line", "branch", "parent", "merged", "kind", "author", "message", "run", "at", "expired_at")


def parse_commit(body: Json) -> Commit:
    """Return a commit."""
    return Commit(id=body["commit"], **{name: body[name] for name in _COMMIT_FIELDS})


def parse_changes(body: Json) -> tuple[CommitChange, ...]:
    """Return what a commit did to each table."""
    return tuple(
        CommitChange(
            TableName.parse_unchecked(item["table"]), item["before"], item["after"], item["content"], item["detail"]
        )
        for item in body["changes"]
    )


def parse_branch(body: Json) -> Branch:
    """Return a branch."""
    return Branch(body["branch"], body["line"], body["head"], body["created_at"], body["author"], body["from"])


def parse_tag(body: Json) -> Tag:
    """Return a tag."""
    return Tag(body["tag"], body["commit"], body["author"], body["at"])


def parse_table_diff(body: Json) -> TableDiff:
    """Return how one table differs."""
    return TableDiff(
        TableName.parse_unchecked(body["table"]),
        body["change"],
        tuple(body["schema"]),
        body["rows_added"],
        body["rows_removed"],
        body["reason"],
    )


def parse_plan(body: Json) -> Plan:
    """Return a plan: what would be done to which table, and why."""
    steps = tuple(_parse_step(item) for item in body["steps"])
    return Plan(body["branch"], body["commit"], steps, body["jvm"], tuple(body["notes"]))


def _parse_step(body: Json) -> PlanStep:
    return PlanStep(
        TableName.parse_unchecked(body["table"]),
        body["action"],
        body["reason"],
        slices=_parse_slices(body["slices"]) if body["slices"] else None,
        rows=body["rows"],
        bytes=body["bytes"],
        is_expected=body["expected"],
        analyse=body["analyse"],
    )


def _parse_slices(body: Json) -> SliceSelection:
    """Return slices; if there are very many, the service sends only their number, in the step's reason."""
    keys = body["keys"]
    if keys is None or body["changed"] != len(keys):
        return SliceSelection(None, body["of"])
    return SliceSelection(tuple(tuple(key) if isinstance(key, list) else (key,) for key in keys), body["of"])


def parse_run(body: Json) -> Run:
    """Return a run; an item of a list has fewer fields than a run that was requested alone."""
    code_fields = {"code_id": body.get("code"), "git": body.get("git"), "packages": body.get("packages")}
    detail = {name: value for name, value in code_fields.items() if value is not None}
    detail |= {"cause": body.get("cause") or "user", "tables": body["tables"], "steps": body.get("steps", [])}
    if "log" in body:  # an attempt
        detail |= {"attempt": body["attempt"], "worker": body["worker"]}
    started_at = body["started_at"] or body.get("queued_at") or ""
    return Run(
        body["run"],
        body["branch"],
        body["state"],
        body["author"],
        started_at,
        body["ended_at"],
        body["commit"],
        {**detail, "error": body.get("error")},
        body.get("scheduled_at"),
        tuple(parse_run(attempt) for attempt in body.get("attempts", ())),
    )


def parse_file(body: Json) -> FileRow:
    """Return a file of a table."""
    return FileRow(body["path"], body["size"], parse_time(body["modified_at"]), body["sha256"])


def parse_worker(body: Json) -> WorkerRecord:
    """Return a process that works for the lake."""
    name, detail = body["worker"], body["detail"]
    return WorkerRecord(name, body["kind"], "", body["state"], body["started_at"], body["renewed_at"], detail)


def parse_stream_health(body: Json) -> StreamHealth:
    """Return the health of a stream."""
    fields = {name: body[name] for name in StreamHealth.__dataclass_fields__}
    return StreamHealth(
        **{**fields, "table": TableName.parse_unchecked(body["table"]), "warnings": tuple(body["warnings"])}
    )


def parse_alarm_status(body: Json) -> AlarmStatus:
    """Return an alarm with its notifications."""
    names: tuple[str, ...] = ("kind", "what", "since", "level", "fix", "run", "number", "over_at", "note")
    names += ("acknowledged_at", "acknowledged_by", "dismissed_at", "dismissed_by")
    alarm_fields = {name: body[name] for name in names}
    alarm = Alarm(body["alarm"], **alarm_fields, tables=tuple(body["tables"]), blocks=tuple(body["blocks"]))
    notifications = tuple(
        Notification(alarm, item["alert"], alarm.current_level, item["tries"], "", item["told_at"], item["problem"])
        for item in body["told"]
    )
    return AlarmStatus(alarm, notifications, body["muted_until"], body["muted_by"])


def parse_mute(body: Json) -> Mute:
    """Return a mute."""
    return Mute(body["subject"], body["kind"], body["muted_until"], body["muted_by"])


def parse_token(body: Json) -> Token:
    """Return a token."""
    limits = {name: None if body[name] is None else tuple(body[name]) for name in ("tables", "sources")}
    return Token(
        body["token"],
        body["scope"],
        body["made_at"],
        body["revoked_at"],
        limits["tables"],
        body["branch"],
        limits["sources"],
        **{name: body[name] for name in ("id", "expires_at", "last_used_at", "previous_until")},
    )


def parse_new_token(body: Json) -> TokenWithSecret:
    """Return a token with its text."""
    return TokenWithSecret(parse_token(body), body["secret"])


def parse_sink_state(body: Json) -> SinkState:
    """Return the state of a sink."""
    return SinkState(**{name: body[name] for name in SinkState.__dataclass_fields__})


def parse_delivery(body: Json) -> DeliveryResult:
    """Return what was delivered to a sink."""
    return parse_delivery_result(body)


def parse_lineage(body: Json) -> Lineage:
    """Return the graph around a table."""
    names = {name: TableName.parse_unchecked(name) for name in body["makers"]}
    edges = [(names[above], names[below]) for above, below in body["edges"]]
    return Lineage(
        names[body["table"]],
        tuple(names[name] for name in body["up"]),
        tuple(names[name] for name in body["down"]),
        {table: tuple(above for above, below in edges if below == table) for table in names.values()},
        {table: tuple(below for above, below in edges if above == table) for table in names.values()},
        {names[name]: text for name, text in body["makers"].items()},
    )


def parse_schedule_status(body: Json) -> ScheduleStatus:
    """Return a schedule."""
    return ScheduleStatus(**{name: body[name] for name in ScheduleStatus.__dataclass_fields__ if name in body})


def parse_version(body: Json) -> TableVersion:
    """Return the version of a table at a commit."""
    return TableVersion(body["location"], body["content"])


def parse_time(text: str | None) -> datetime | None:
    """Return a time."""
    return datetime.fromisoformat(text) if text is not None else None


def to_list(selection: Any) -> list[str]:
    """Return one or several selections as a list."""
    return [selection] if isinstance(selection, str) else [str(text) for text in cast("list[str]", selection)]
