"""How a lake is at a moment, from a few rows: how long the queue is, and whether anything changed. Reads only."""

import hashlib
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.control import run_queue, workers


def depths(connection: Connection) -> dict[str, int]:
    """Return how many entries of the queue are in each open state."""
    state = schema.queue.c.state
    query = sa.select(state, sa.func.count()).where(state.in_(run_queue.OPEN)).group_by(state)
    found = {row[0]: row[1] for row in connection.execute(query)}
    return {name: found.get(name, 0) for name in run_queue.OPEN}


def ended(connection: Connection) -> dict[str, int]:
    """Return how many runs the catalog remembers, by their state."""
    state = schema.runs.c.state
    return {row[0]: row[1] for row in connection.execute(sa.select(state, sa.func.count()).group_by(state))}


def waiting_since(connection: Connection) -> list[str]:
    """Return since when each entry waits that could be taken; those of a backfill that was paused could not."""
    columns = schema.queue.c
    paused = sa.select(run_queue.cause_of(schema.backfills.c.id)).where(schema.backfills.c.state == run_queue.PAUSED)
    waiting = sa.and_(columns.state == run_queue.QUEUED, columns.cause.not_in(paused))
    found = connection.execute(sa.select(columns.queued_at, columns.not_before).where(waiting))
    return [max(row.queued_at, row.not_before) for row in found]


def last_success(connection: Connection) -> dict[str, str]:
    """Return when a run last went well, for each reason that there were runs for."""
    columns = schema.queue.c
    went = columns.state.in_((run_queue.SUCCEEDED, "nothing"))
    query = sa.select(columns.cause, sa.func.max(columns.ended_at)).where(went).group_by(columns.cause)
    return {row[0]: row[1] for row in connection.execute(query)}


def look(connection: Connection) -> dict[str, Any]:
    """Return what tells whether anything changed: heads, the queue, workers, streams, alarms."""
    heads = sa.select(schema.branches.c.name, schema.branches.c.head).order_by(schema.branches.c.name)
    columns = schema.streams.c
    streams = sa.select(columns.branch, columns.table_name, columns.state, columns.since)
    found = connection.execute(streams.order_by(columns.branch, columns.table_name))
    return {
        "branches": {row.name: row.head for row in connection.execute(heads)},
        "queue": {**depths(connection), "version": _version(connection)},
        "workers": [{"worker": one.id, "kind": one.kind, "state": one.state} for one in workers.present(connection)],
        "streams": [
            {"branch": row.branch, "table": row.table_name, "state": row.state, "since": row.since} for row in found
        ],
        "alarms": connection.execute(_alarms()).scalars().all(),
    }


def _alarms() -> "sa.Select[Any]":
    columns = schema.alarms.c
    return sa.select(columns.key).where(columns.over_at.is_(None)).order_by(columns.key)


def _version(connection: Connection) -> str:
    """Return what differs whenever an entry came, began, is to stop or ended: only open ones are looked at."""
    columns = schema.queue.c
    newest = connection.execute(sa.select(sa.func.max(columns.id))).scalar()
    told = (sa.func.count(), sa.func.max(columns.id), sa.func.min(columns.id), sa.func.sum(columns.attempt))
    times = (sa.func.max(columns.started_at), sa.func.max(columns.cancel_at))
    opened = connection.execute(sa.select(*told, *times).where(columns.state.in_(run_queue.OPEN))).one()
    return hashlib.sha256(repr((newest, *opened)).encode()).hexdigest()[:16]
