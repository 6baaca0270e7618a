"""The entries of the run queue: what is requested, its state, and how both are stored."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Mistake
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import parse_time
from runnel.model.operation_request import DeliveryRequest, LineageRequest, ReleaseRequest, RewindRequest
from runnel.model.run_request import RunRequest
from runnel.model.schedule_slot import ScheduleSlot
from runnel.model.worker_request import PlanRequest, QueryRequest, WorkerRequest, parse_worker_request
from runnel.names import new_run_id
from runnel.telemetry import tracing

QUEUED, RUNNING, CANCELLED, SUCCEEDED, FAILED = "queued", "running", "cancelled", "succeeded", "failed"
OPEN_STATES = (QUEUED, RUNNING)
LOST = "lost"  # never stored, only displayed: running on a worker that no longer renews its claim
BACKFILL_PREFIX = "backfill/"  # prefix of the cause of its chunks
PAUSED = "paused"  # a backfill whose chunks wait for a person
_REPEAT_COMMANDS = {
    QueryRequest.kind: "ask it again with `runnel query`",
    PlanRequest.kind: "plan again with `runnel plan`, or compute with `runnel run`",
    LineageRequest.kind: "ask again with `runnel lineage`",
    RewindRequest.kind: "rewind again with `runnel rewind`",
    ReleaseRequest.kind: "release again with `runnel quarantine TABLE release`",
    DeliveryRequest.kind: "deliver again with `runnel sinks deliver`",
}
_SCHEDULE_FIELDS = ("select", "reads_sources")  # what a schedule always states; of the rest only what is no default


@dataclass(frozen=True)
class QueueRequest:
    """A request to run something. Of several requests with the same `slot` only the first is queued.

    `schedule_slot` is the due time of the schedule that queued it, `trace` the traceparent of the request's sender.
    """

    request: WorkerRequest
    author: str
    cause: str = "user"
    slot: str | None = None
    priority: int = 0
    retries: int = 2
    timeout_seconds: int | None = None
    not_before: str = ""
    schedule_slot: ScheduleSlot | None = None
    trace: str | None = None
    id: str = field(default_factory=lambda: new_run_id(datetime.now(UTC)))


@dataclass(frozen=True)
class QueueEntry:
    """The current state of an entry of the queue. `commit` is None until it has published."""

    id: str
    branch: str
    kind: str
    request: WorkerRequest
    cause: str
    slot: str | None
    author: str
    priority: int
    state: str
    queued_at: str
    attempt: int
    retries: int
    timeout_seconds: int | None
    worker: str | None = None
    token: str | None = field(default=None, repr=False)
    renewed_at: str | None = None
    started_at: str | None = None
    cancel_at: str | None = None
    commit: str | None = None
    ended_at: str | None = None
    outcome: Mapping[str, Any] | None = None
    not_before: str = ""
    schedule_slot: ScheduleSlot | None = None
    trace: str | None = None

    @property
    def run_request(self) -> RunRequest:
        """Return the run that it requests; the message names the schedule that queued it, if it has no other.

        Raise if it requests something else.
        """
        request = require_run(self)
        schedule_message = self.schedule_slot.message if self.schedule_slot is not None else None
        return replace(request, message=request.message or schedule_message)

    @property
    def request_json(self) -> dict[str, Any]:
        """Return the request as the catalog stores it."""
        return to_request_json(self.request, self.schedule_slot, self.trace)

    @property
    def run(self) -> str:
        """Return the run id of its last attempt."""
        return self.id if self.attempt <= 1 else f"{self.id}-{self.attempt}"

    @property
    def scheduled_at(self) -> str | None:
        """Return the time of the schedule for which it was queued, or None."""
        slot = self.schedule_slot
        return slot.due_text if slot is not None and slot.is_timed else None

    @property
    def claim(self) -> tuple[str, str]:
        """Return the id and token that a commit draft carries, so that it is published only if the claim is valid."""
        return self.id, self.token or ""

    @property
    def waited_seconds(self) -> float:
        """Return how long its last attempt waited to be claimed; the pause after a failure does not count."""
        if self.started_at is None:
            return 0.0
        waiting_since = max(self.queued_at, self.not_before)
        return max((parse_time(self.started_at) - parse_time(waiting_since)).total_seconds(), 0.0)

    @property
    def is_open(self) -> bool:
        """Return whether it has not ended yet."""
        return self.state in (*OPEN_STATES, LOST)  # one whose worker is lost is run again, or is ended


def require_run(entry: QueueEntry) -> RunRequest:
    """Return the request of an entry as it is stored; raise if it is a query, a plan or the like."""
    if isinstance(entry.request, RunRequest):
        return entry.request
    what = f"{entry.id} is a {entry.request.kind}, not a run"
    raise Mistake("NOT_A_RUN", what, fix=_REPEAT_COMMANDS[entry.request.kind])


def backfill_cause(backfill: "sa.Column[Any] | str") -> Any:
    """Return the cause of a backfill's entries, for its id or for a column of ids."""
    return BACKFILL_PREFIX + backfill


def to_request_json(request: WorkerRequest, schedule_slot: ScheduleSlot | None, trace: str | None) -> dict[str, Any]:
    """Return the stored JSON of a request, ordered by key.

    >>> to_request_json(RunRequest(("dws.day",)), ScheduleSlot("often", 7), None)
    {'due': '#7', 'reads_sources': True, 'schedule': 'often', 'select': ['dws.day']}
    """
    fields = request.to_json()
    if schedule_slot is not None:
        defaults = RunRequest().to_json()
        fields = {
            name: value
            for name, value in fields.items()
            if name in _SCHEDULE_FIELDS or name not in defaults or value != defaults[name]
        } | schedule_slot.to_json()
    return dict(sorted((fields | ({"trace": trace} if trace else {})).items()))


def to_row(entry: QueueRequest, queued_at: str) -> dict[str, Any]:
    """Return the row of a request that is queued at a time."""
    trace = tracing.current_traceparent() or entry.trace  # for example that of the HTTP request
    return {
        "id": entry.id,
        "branch": entry.request.branch,
        "kind": entry.request.kind,
        "wish": json.dumps(to_request_json(entry.request, entry.schedule_slot, trace)),
        "cause": entry.cause,
        "slot": entry.slot,
        "author": entry.author,
        "priority": entry.priority,
        "state": QUEUED,
        "queued_at": queued_at,
        "not_before": entry.not_before,
        "attempt": 0,
        "retries": entry.retries,
        "timeout_seconds": entry.timeout_seconds,
    }


def read_entry(connection: Connection, entry_id: str) -> QueueEntry:
    """Read the entry with this id, which must exist."""
    return parse_entry(connection.execute(sa.select(schema.queue).where(schema.queue.c.id == entry_id)).one())


def parse_entry(row: Row[Any]) -> QueueEntry:
    """Return the entry that a row of the queue holds."""
    request_json = json.loads(row.wish)
    return QueueEntry(
        row.id,
        row.branch,
        row.kind,
        parse_worker_request(row.kind, request_json, row.branch),
        row.cause,
        row.slot,
        row.author,
        row.priority,
        row.state,
        row.queued_at,
        row.attempt,
        row.retries,
        row.timeout_seconds,
        row.worker,
        row.token,
        row.renewed_at,
        row.started_at,
        row.cancel_at,
        row.commit_id,
        row.ended_at,
        json.loads(row.outcome) if row.outcome else None,
        row.not_before,
        ScheduleSlot.from_json(request_json),
        request_json.get("trace"),
    )
