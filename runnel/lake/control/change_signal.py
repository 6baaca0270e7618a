"""Read a cheap summary of a lake's state: the length of the queue, and whether anything changed. Reads only."""

import hashlib
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.control import queue_entry, workers


def count_open_requests(connection: Connection) -> dict[str, int]:
    """Return how many entries of the queue are in each open state."""
    state = schema.queue.c.state
    query = sa.select(state, sa.func.count()).where(state.in_(queue_entry.OPEN_STATES)).group_by(state)
    counts = {row[0]: row[1] for row in connection.execute(query)}
    return {name: counts.get(name, 0) for name in queue_entry.OPEN_STATES}


def count_runs_by_state(connection: Connection) -> dict[str, int]:
    """Return how many runs the catalog records in each state."""
    state = schema.runs.c.state
    return {row[0]: row[1] for row in connection.execute(sa.select(state, sa.func.count()).group_by(state))}


def list_waiting_since(connection: Connection) -> list[str]:
    """Return since when each claimable entry waits; entries of a paused backfill are not claimable."""
    columns = schema.queue.c
    paused = sa.select(queue_entry.backfill_cause(schema.backfills.c.id)).where(
        schema.backfills.c.state == queue_entry.PAUSED
    )
    is_waiting = sa.and_(columns.state == queue_entry.QUEUED, columns.cause.not_in(paused))
    rows = connection.execute(sa.select(columns.queued_at, columns.not_before).where(is_waiting))
    return [max(row.queued_at, row.not_before) for row in rows]


def read_last_success(connection: Connection) -> dict[str, str]:
    """Return when a run last succeeded, for each cause."""
    columns = schema.queue.c
    has_succeeded = columns.state.in_((queue_entry.SUCCEEDED, "nothing"))
    query = sa.select(columns.cause, sa.func.max(columns.ended_at)).where(has_succeeded).group_by(columns.cause)
    return {row[0]: row[1] for row in connection.execute(query)}


def read_change_signal(connection: Connection) -> dict[str, Any]:
    """Return values that differ whenever something changed: heads, the queue, workers, streams, alarms."""
    head_query = sa.select(schema.branches.c.name, schema.branches.c.head).order_by(schema.branches.c.name)
    columns = schema.streams.c
    stream_query = sa.select(columns.branch, columns.table_name, columns.state, columns.since)
    stream_rows = connection.execute(stream_query.order_by(columns.branch, columns.table_name))
    return {
        "branches": {row.name: row.head for row in connection.execute(head_query)},
        "queue": {**count_open_requests(connection), "version": _fingerprint_queue(connection)},
        "workers": [
            {"worker": worker.id, "kind": worker.kind, "state": worker.state}
            for worker in workers.list_alive(connection)
        ],
        "streams": [
            {"branch": row.branch, "table": row.table_name, "state": row.state, "since": row.since}
            for row in stream_rows
        ],
        "alarms": connection.execute(_build_alarms_query()).scalars().all(),
    }


def _build_alarms_query() -> "sa.Select[Any]":
    columns = schema.alarms.c
    is_open = sa.and_(columns.over_at.is_(None), columns.dismissed_at.is_(None))
    return sa.select(columns.key).where(is_open).order_by(columns.key)


def _fingerprint_queue(connection: Connection) -> str:
    """Return a hash that differs whenever an entry was added, started, cancelled or ended; reads open ones only."""
    columns = schema.queue.c
    newest = connection.execute(sa.select(sa.func.max(columns.id))).scalar()
    aggregates = (sa.func.count(), sa.func.max(columns.id), sa.func.min(columns.id), sa.func.sum(columns.attempt))
    latest_times = (sa.func.max(columns.started_at), sa.func.max(columns.cancel_at))
    open_summary = connection.execute(
        sa.select(*aggregates, *latest_times).where(columns.state.in_(queue_entry.OPEN_STATES))
    ).one()
    return hashlib.sha256(repr((newest, *open_summary)).encode()).hexdigest()[:16]
