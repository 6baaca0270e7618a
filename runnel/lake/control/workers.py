"""Register the processes of a lake, workers and services. Each renews its row; one that doesn't counts as dead."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time, parse_time, read_clock
from runnel.lake.control.run_claims import CLAIM_SECONDS
from runnel.lake.leases.expiry import is_lease_owner_dead
from runnel.lake.leases.pins import current_lease_owner

WORKER, SERVICE = "worker", "service"
_STOPPED = "stopped"
_FORGET_SECONDS = 86_400.0


@dataclass(frozen=True)
class WorkerRecord:
    """A registered worker or service process. `state` is "starting", "ready", "stopping" or "stopped"."""

    id: str
    kind: str
    owner: str
    state: str
    started_at: str
    renewed_at: str
    detail: Mapping[str, Any]


def record_state(db: Database, name: str, kind: str, state: str, detail: Mapping[str, Any]) -> None:
    """Record that a process is alive, and its state; a new process also deletes rows that expired long ago."""
    columns = schema.workers.c

    def work(connection: Connection) -> None:
        now = db.now(connection)
        values = {"state": state, "renewed_at": now, "detail": json.dumps(dict(detail), sort_keys=True, default=str)}
        if connection.execute(schema.workers.update().where(columns.id == name).values(values)).rowcount:
            return
        new_row = {"id": name, "kind": kind, "owner": current_lease_owner(), "started_at": now, **values}
        connection.execute(schema.workers.insert().values(new_row))
        oldest_retained = format_time(parse_time(now) - timedelta(seconds=_FORGET_SECONDS))
        connection.execute(schema.workers.delete().where(columns.renewed_at < oldest_retained))

    db.write(work)


def remove(db: Database, name: str) -> None:
    """Delete the row of a process that has ended."""
    db.write(lambda connection: connection.execute(schema.workers.delete().where(schema.workers.c.id == name)))


def record_stop(db: Database, name: str) -> None:
    """Record that a service has stopped, so that `find_last_service` can tell since when none is running."""
    update = schema.workers.update().where(schema.workers.c.id == name)
    db.write(lambda connection: connection.execute(update.values(state=_STOPPED, renewed_at=db.now(connection))))


def find_last_service(connection: Connection) -> WorkerRecord | None:
    """Return the service that was the last to give a sign of life; None if there was none for a day."""
    columns = schema.workers.c
    query = sa.select(schema.workers).where(columns.kind == SERVICE).order_by(columns.renewed_at.desc()).limit(1)
    row = connection.execute(query).first()
    return _parse_worker(row) if row is not None else None


def list_alive(connection: Connection, kind: str | None = None) -> list[WorkerRecord]:
    """Return the processes that are alive, oldest first."""
    query = sa.select(schema.workers).order_by(schema.workers.c.started_at, schema.workers.c.id)
    query = query.where(schema.workers.c.state != _STOPPED)
    if kind is not None:
        query = query.where(schema.workers.c.kind == kind)
    renewed_after = format_time(parse_time(read_clock(connection)) - timedelta(seconds=CLAIM_SECONDS))
    renewed_workers = [
        _parse_worker(row) for row in connection.execute(query.where(schema.workers.c.renewed_at > renewed_after))
    ]
    is_sqlite = connection.dialect.name == "sqlite"  # used on one machine only, so a dead process is detected at once
    return [worker for worker in renewed_workers if not (is_sqlite and is_lease_owner_dead(worker.owner))]


def has_worker(connection: Connection, project: str) -> bool:
    """Return whether a project has a worker that accepts runs."""
    alive_workers = list_alive(connection, WORKER)
    return any(worker.detail.get("project") == project and worker.state != "stopping" for worker in alive_workers)


def _parse_worker(row: Row[Any]) -> WorkerRecord:
    return WorkerRecord(row.id, row.kind, row.owner, row.state, row.started_at, row.renewed_at, json.loads(row.detail))
