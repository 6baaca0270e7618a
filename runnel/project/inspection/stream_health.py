"""How streams, and sources that are read on and on, are doing: from what their batches wrote down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from runnel.lake.catalog.database import moment, stamp
from runnel.lake.flow_state.stream_metrics import Measure, first_after, measures
from runnel.lake.flow_state.streams import Stream, streams
from runnel.lake.history.branches import head_state
from runnel.lake.leases.expiry import is_dead

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.client.lake import Lake
    from runnel.lake.store import Store
    from runnel.names import TableName

MINUTE = timedelta(minutes=1)
MOST_ROWS = 1_000_000  # that a stream remembers without a watermark; then people are warned


@dataclass(frozen=True)
class Health:
    """One stream or source at a moment. Rates and durations are of the last minute in which there was a batch.

    `behind_seconds` is how long ago the oldest change came that it has not read; 0 where it has read everything.
    """

    table: "TableName"
    branch: str
    kind: str  # stream or source
    state: str  # running, waiting, failed, idle
    since: str
    problem: str | None
    batch_at: str | None
    batches: int
    rows_per_second: float
    batch_ms: float | None
    parts_ms: Mapping[str, float]
    rows: int
    set_aside: int
    behind_seconds: float | None
    delay_ms: float | None  # from the event's arrival in its system to its commit, the oldest of a batch
    watermark: str | None
    state_rows: int
    state_bytes: int
    late_rows: int
    ahead_rows: int
    warnings: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {**vars(self), "table": str(self.table), "parts_ms": dict(self.parts_ms), "warnings": [*self.warnings]}


def healths(lake: "Lake", branch: str | None = None) -> list[Health]:
    """Return how each stream and source is, those of one branch or all."""
    store = lake.store
    found = store.db.read(lambda connection: streams(connection, branch))
    return [_health(store, one) for one in found.values()]


def series(lake: "Lake", table: "TableName", branch: str = "main", minutes: int = 60) -> list[Measure]:
    """Return what the batches of a table did in the last minutes, oldest first."""
    db = lake.store.db
    since = stamp(moment(db.now()) - timedelta(minutes=minutes))
    return db.read(lambda connection: measures(connection, branch, table, since=since))


def _health(store: "Store", stream: Stream) -> Health:
    db = store.db
    now = moment(db.now())
    recent = db.read(lambda c: measures(c, stream.branch, stream.table, since=stamp(now - 15 * MINUTE)))
    newest = (
        recent[-1] if recent else db.read(lambda c: next(iter(measures(c, stream.branch, stream.table, last=1)), None))
    )
    minute = [one for one in recent if newest and moment(one.at) > moment(newest.at) - MINUTE]
    is_stream = stream.is_task
    total = [one.detail.get("total_ms") for one in minute]
    known = [one for one in total if one is not None]
    detail = newest.detail if newest else {}
    return Health(
        stream.table,
        stream.branch,
        "stream" if is_stream else "source",
        _state(stream),
        stream.since,
        stream.problem,
        newest.at if newest else None,
        len(minute),
        _rate(minute),
        sum(known) / len(known) if known else None,
        _parts(minute),
        sum(int(one.detail.get("rows") or 0) for one in minute),
        sum(int(one.detail.get("set_aside") or 0) for one in minute),
        db.read(lambda c: _behind(c, stream, now)) if is_stream else None,
        detail.get("oldest_ms"),
        detail.get("watermark"),
        int(detail.get("state_rows") or 0),
        int(detail.get("state_bytes") or 0),
        sum(int(one.detail.get("late_rows") or 0) for one in minute),
        sum(int(one.detail.get("ahead_rows") or 0) for one in minute),
        _warnings(detail, minute),
    )


def _state(stream: Stream) -> str:
    """Return its state; a process that died could not say so."""
    if stream.state in ("running", "waiting") and stream.owner is not None and is_dead(stream.owner):
        return "stopped"
    return stream.state


def _rate(minute: Sequence[Measure]) -> float:
    """Return how many rows came in per second, over the time from the first batch to the last."""
    if not minute:
        return 0.0
    seconds = (moment(minute[-1].at) - moment(minute[0].at)).total_seconds()
    first = (minute[0].detail.get("total_ms") or 0) / 1000
    rows = sum(int(one.detail.get("input_rows") or one.detail.get("rows") or 0) for one in minute)
    return round(rows / max(seconds + first, 0.001), 1)


def _parts(minute: Sequence[Measure]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for one in minute:
        parts = one.detail.get("parts_ms") or {
            name: one.detail[f"{name}_ms"] for name in ("ask",) if f"{name}_ms" in one.detail
        }
        if "write_ms" in one.detail:
            parts = {**parts, "write": one.detail["write_ms"]}
        for name, value in parts.items():
            found.setdefault(name, []).append(float(value))
    return {name: round(sum(values) / len(values), 1) for name, values in found.items()}


def _behind(connection: "Connection", stream: Stream, now: datetime) -> float:
    """Return how long ago the first change was published that a stream has not taken up; 0 where it has all."""
    current, oldest = head_state(connection, stream.branch), now
    for table, tape in stream.tapes.items():
        if table in current and current[table].content != tape.content:
            oldest = min(oldest, moment(first_after(connection, stream.branch, table, tape.reached) or stamp(now)))
    return round(max((now - oldest).total_seconds(), 0.0), 3)


def _warnings(detail: Mapping[str, Any], minute: Sequence[Measure]) -> tuple[str, ...]:
    found = []
    rows, mark = int(detail.get("state_rows") or 0), detail.get("watermark")
    if rows > MOST_ROWS and not mark:
        what = f"it remembers {rows:,} rows and has no watermark, so that it never forgets one"
        found.append(f'{what}: add watermark=("ts", "10 minutes")')
    ahead = sum(int(one.detail.get("ahead_rows") or 0) for one in minute)
    if ahead:
        found.append(f"{ahead:,} rows are more than an hour ahead of the clock, and were left out")
    late = sum(int(one.detail.get("late_rows") or 0) for one in minute)
    if late:
        found.append(f"{late:,} rows came later than the watermark allows, and were left out")
    return tuple(found)
