"""Report the health of streams and continuously read sources from the metrics of their batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.flow_state.stream_metrics import BatchMetrics, find_first_change_after, read_batch_metrics
from runnel.lake.flow_state.streams import StreamRecord, list_streams
from runnel.lake.history.branches import read_head_state
from runnel.lake.leases.expiry import is_lease_owner_dead

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.client.lake import Lake
    from runnel.lake.store import Store
    from runnel.names import TableName

MINUTE = timedelta(minutes=1)
MOST_ROWS = 1_000_000  # in the state of a stream without a watermark; more cause a warning


@dataclass(frozen=True)
class StreamHealth:
    """The health of a stream or source. Rates and durations are of the last minute in which there was a batch.

    `behind_seconds` is the age of the oldest change that it has not read; 0 if it has read everything.
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


def list_stream_health(lake: "Lake", branch: str | None = None) -> list[StreamHealth]:
    """Return the health of each stream and source, of one branch or all."""
    store = lake.store
    all_streams = store.db.read(lambda connection: list_streams(connection, branch))
    return [_build_health(store, stream) for stream in all_streams.values()]


def read_measures(lake: "Lake", table: "TableName", branch: str = "main", minutes: int = 60) -> list[BatchMetrics]:
    """Return the metrics of a table's batches in the last minutes, oldest first."""
    db = lake.store.db
    since = format_time(parse_time(db.now()) - timedelta(minutes=minutes))
    return db.read(lambda connection: read_batch_metrics(connection, branch, table, since=since))


def _build_health(store: "Store", stream: StreamRecord) -> StreamHealth:
    db = store.db
    now = parse_time(db.now())
    recent_measures = db.read(
        lambda c: read_batch_metrics(c, stream.branch, stream.table, since=format_time(now - 15 * MINUTE))
    )
    newest_measure = (
        recent_measures[-1]
        if recent_measures
        else db.read(lambda c: next(iter(read_batch_metrics(c, stream.branch, stream.table, last=1)), None))
    )
    last_minute = [
        measure
        for measure in recent_measures
        if newest_measure and parse_time(measure.at) > parse_time(newest_measure.at) - MINUTE
    ]
    is_stream = stream.is_task
    totals = [measure.detail.get("total_ms") for measure in last_minute]
    known_totals = [measure for measure in totals if measure is not None]
    detail = newest_measure.detail if newest_measure else {}
    return StreamHealth(
        stream.table,
        stream.branch,
        "stream" if is_stream else "source",
        _find_state(stream),
        stream.since,
        stream.problem,
        newest_measure.at if newest_measure else None,
        len(last_minute),
        _compute_rate(last_minute),
        sum(known_totals) / len(known_totals) if known_totals else None,
        _average_parts(last_minute),
        sum(int(measure.detail.get("rows") or 0) for measure in last_minute),
        sum(int(measure.detail.get("set_aside") or 0) for measure in last_minute),
        db.read(lambda c: _compute_delay(c, stream, now)) if is_stream else None,
        detail.get("oldest_ms"),
        detail.get("watermark"),
        int(detail.get("state_rows") or 0),
        int(detail.get("state_bytes") or 0),
        sum(int(measure.detail.get("late_rows") or 0) for measure in last_minute),
        sum(int(measure.detail.get("ahead_rows") or 0) for measure in last_minute),
        _list_warnings(detail, last_minute),
    )


def _find_state(stream: StreamRecord) -> str:
    """Return the state of a stream; it is stopped if its process has died."""
    if stream.state in ("running", "waiting") and stream.owner is not None and is_lease_owner_dead(stream.owner):
        return "stopped"
    return stream.state


def _compute_rate(last_minute: Sequence[BatchMetrics]) -> float:
    """Return the number of input rows per second, over the time from the first batch to the last."""
    if not last_minute:
        return 0.0
    seconds = (parse_time(last_minute[-1].at) - parse_time(last_minute[0].at)).total_seconds()
    first_seconds = (last_minute[0].detail.get("total_ms") or 0) / 1000
    rows = sum(int(measure.detail.get("input_rows") or measure.detail.get("rows") or 0) for measure in last_minute)
    return round(rows / max(seconds + first_seconds, 0.001), 1)


def _average_parts(last_minute: Sequence[BatchMetrics]) -> dict[str, float]:
    values_by_part: dict[str, list[float]] = {}
    for measure in last_minute:
        parts = measure.detail.get("parts_ms") or {
            name: measure.detail[f"{name}_ms"] for name in ("ask",) if f"{name}_ms" in measure.detail
        }
        if "write_ms" in measure.detail:
            parts = {**parts, "write": measure.detail["write_ms"]}
        for name, value in parts.items():
            values_by_part.setdefault(name, []).append(float(value))
    return {name: round(sum(values) / len(values), 1) for name, values in values_by_part.items()}


def _compute_delay(connection: "Connection", stream: StreamRecord, now: datetime) -> float:
    """Return how long ago the first change was published that a stream has not read; 0 if it has read all."""
    current, oldest = read_head_state(connection, stream.branch), now
    for table, append_log in stream.append_logs.items():
        if table in current and current[table].content != append_log.content:
            oldest = min(
                oldest,
                parse_time(
                    find_first_change_after(connection, stream.branch, table, append_log.reached) or format_time(now)
                ),
            )
    return round(max((now - oldest).total_seconds(), 0.0), 3)


def _list_warnings(detail: Mapping[str, Any], last_minute: Sequence[BatchMetrics]) -> tuple[str, ...]:
    warnings = []
    rows, watermark = int(detail.get("state_rows") or 0), detail.get("watermark")
    if rows > MOST_ROWS and not watermark:
        what = f"it keeps {rows:,} rows as state and has no watermark, so it never drops any of them"
        warnings.append(f'{what}: add watermark=("ts", "10 minutes")')
    ahead_rows = sum(int(measure.detail.get("ahead_rows") or 0) for measure in last_minute)
    if ahead_rows:
        warnings.append(f"{ahead_rows:,} rows are more than an hour ahead of the clock, and were left out")
    late_rows = sum(int(measure.detail.get("late_rows") or 0) for measure in last_minute)
    if late_rows:
        warnings.append(f"{late_rows:,} rows arrived later than the watermark allows, and were left out")
    return tuple(warnings)
