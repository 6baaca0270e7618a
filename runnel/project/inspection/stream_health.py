"""Report the health of streams and continuously read sources from the metrics of their batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from runnel.errors import plural
from runnel.lake.catalog.database import format_time, parse_time
from runnel.lake.flow_state.stream_metrics import BatchMetrics, read_batch_metrics
from runnel.lake.leases.expiry import is_lease_owner_dead
from runnel.project.inspection.backlog import Backlog, ReaderBacklog, list_backlogs

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.flow_state.streams import StreamRecord
    from runnel.lake.store import Store
    from runnel.names import TableName

MINUTE, WARNING_PERIOD = timedelta(minutes=1), timedelta(minutes=15)
MOST_ROWS = 1_000_000  # in the state of a stream without a watermark; more cause a warning


@dataclass(frozen=True)
class StreamHealth:
    """The health of a stream or source. Rates, durations and counts are of the last minute before it was asked for.

    `behind_rows` is what it has not read, or `behind_files` and `behind_bytes` if the rows are unknown until they are
    read; `behind_seconds` is the age of the oldest of it, 0 if it has read everything. All are None if nobody knows.
    `looked_at` is when a worker saw that in another system; None if it is true now.
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
    behind_rows: int | None
    behind_files: int | None
    behind_bytes: int | None
    behind_seconds: float | None
    looked_at: str | None
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
    return [_build_health(lake.store, reader) for reader in list_backlogs(lake.store, branch)]


def read_measures(lake: "Lake", table: "TableName", branch: str = "main", minutes: int = 60) -> list[BatchMetrics]:
    """Return the metrics of a table's batches in the last minutes, oldest first."""
    db = lake.store.db
    since = format_time(parse_time(db.now()) - timedelta(minutes=minutes))
    return db.read(lambda connection: read_batch_metrics(connection, branch, table, since=since))


def _build_health(store: "Store", reader: ReaderBacklog) -> StreamHealth:
    db, stream, backlog = store.db, reader.record, reader.backlog
    now = parse_time(db.now())
    recent_measures = db.read(
        lambda c: read_batch_metrics(c, stream.branch, stream.table, since=format_time(now - WARNING_PERIOD))
    )
    newest_measure = (
        recent_measures[-1]
        if recent_measures
        else db.read(lambda c: next(iter(read_batch_metrics(c, stream.branch, stream.table, last=1)), None))
    )
    last_minute = [measure for measure in recent_measures if parse_time(measure.at) > now - MINUTE]
    total_times = [measure.detail["total_ms"] for measure in last_minute if measure.detail.get("total_ms") is not None]
    detail = newest_measure.detail if newest_measure else {}
    return StreamHealth(
        stream.table,
        stream.branch,
        reader.kind,
        _find_state(stream),
        stream.since,
        stream.problem,
        newest_measure.at if newest_measure else None,
        len(last_minute),
        _compute_rate(last_minute, now),
        sum(total_times) / len(total_times) if total_times else None,
        _average_parts(last_minute),
        _sum_detail(last_minute, "rows"),
        _sum_detail(last_minute, "set_aside"),
        backlog.rows,
        backlog.files,
        backlog.bytes,
        _compute_age(backlog, now),
        backlog.looked_at,
        last_minute[-1].detail.get("oldest_ms") if last_minute else None,
        detail.get("watermark"),
        int(detail.get("state_rows") or 0),
        int(detail.get("state_bytes") or 0),
        _sum_detail(last_minute, "late_rows"),
        _sum_detail(last_minute, "ahead_rows"),
        _list_warnings(detail, recent_measures),
    )


def _sum_detail(measures: Sequence[BatchMetrics], name: str) -> int:
    return sum(int(measure.detail.get(name) or 0) for measure in measures)


def _compute_age(backlog: Backlog, now: datetime) -> float | None:
    """Return how long the oldest of a backlog has waited; 0 if there is none, None if it is unknown."""
    if backlog.is_empty:
        return 0.0
    if backlog.since is None:
        return None
    return round(max((now - parse_time(backlog.since)).total_seconds(), 0.001), 3)


def _find_state(stream: "StreamRecord") -> str:
    """Return the state of a stream; it is stopped if its process has died."""
    if stream.state in ("running", "waiting") and stream.owner is not None and is_lease_owner_dead(stream.owner):
        return "stopped"
    return stream.state


def _compute_rate(last_minute: Sequence[BatchMetrics], now: datetime) -> float:
    """Return the number of input rows per second, over the time from the start of the first batch until now."""
    if not last_minute:
        return 0.0
    seconds = (now - parse_time(last_minute[0].at)).total_seconds()
    first_seconds = (last_minute[0].detail.get("total_ms") or 0) / 1000
    rows = sum(int(measure.detail.get("input_rows") or measure.detail.get("rows") or 0) for measure in last_minute)
    return round(rows / max(seconds + first_seconds, 1.0), 1)


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


def _list_warnings(detail: Mapping[str, Any], recent_measures: Sequence[BatchMetrics]) -> tuple[str, ...]:
    warnings = []
    rows, watermark = int(detail.get("state_rows") or 0), detail.get("watermark")
    if rows > MOST_ROWS and not watermark:
        what = f"it keeps {rows:,} rows as state and has no watermark, so it never drops any of them"
        warnings.append(f'{what}: add watermark=("ts", "10 minutes")')
    if ahead_rows := _sum_detail(recent_measures, "ahead_rows"):
        what = f"{plural(ahead_rows, 'row')} of the last 15 minutes {'is' if ahead_rows == 1 else 'are'}"
        left_out = "was left out" if ahead_rows == 1 else "were left out"
        warnings.append(f"{what} more than an hour ahead of the clock, and {left_out}")
    if late_rows := _sum_detail(recent_measures, "late_rows"):
        left_out = "was left out" if late_rows == 1 else "were left out"
        what = f"{plural(late_rows, 'row')} of the last 15 minutes came later than the watermark allows"
        warnings.append(f"{what}, and {left_out}")
    return tuple(warnings)
