"""Who works for a lake: workers that compute, services that answer. Each renews its row; one that doesn't is gone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, clock, moment, stamp
from runnel.lake.control.run_queue import CLAIM_SECONDS
from runnel.lake.leases.expiry import is_dead
from runnel.lake.leases.pins import owner

WORKER, SERVICE = "worker", "service"
_FORGET_SECONDS = 86_400.0


@dataclass(frozen=True)
class Worker:
    """A process that works for the lake. `state` is "starting", "ready" or "stopping"."""

    id: str
    kind: str
    owner: str
    state: str
    started_at: str
    renewed_at: str
    detail: Mapping[str, Any]


def tell(db: Database, name: str, kind: str, state: str, detail: Mapping[str, Any]) -> None:
    """Say that a process is there, and how it is; rows of those that left long ago go."""
    columns = schema.workers.c

    def work(connection: Connection) -> None:
        now = db.now(connection)
        values = {"state": state, "renewed_at": now, "detail": json.dumps(dict(detail), sort_keys=True, default=str)}
        if connection.execute(schema.workers.update().where(columns.id == name).values(values)).rowcount:
            return
        new = {"id": name, "kind": kind, "owner": owner(), "started_at": now, **values}
        connection.execute(schema.workers.insert().values(new))
        old = stamp(moment(now) - timedelta(seconds=_FORGET_SECONDS))
        connection.execute(schema.workers.delete().where(columns.renewed_at < old))

    db.write(work)


def leave(db: Database, name: str) -> None:
    """Say that a process has ended."""
    db.write(lambda connection: connection.execute(schema.workers.delete().where(schema.workers.c.id == name)))


def present(connection: Connection, kind: str | None = None) -> list[Worker]:
    """Return who is there now, the oldest first."""
    query = sa.select(schema.workers).order_by(schema.workers.c.started_at, schema.workers.c.id)
    if kind is not None:
        query = query.where(schema.workers.c.kind == kind)
    until = stamp(moment(clock(connection)) - timedelta(seconds=CLAIM_SECONDS))
    found = [_worker(row) for row in connection.execute(query.where(schema.workers.c.renewed_at > until))]
    is_sqlite = connection.dialect.name == "sqlite"  # used from one machine, so a dead process is known at once
    return [one for one in found if not (is_sqlite and is_dead(one.owner))]


def are_there(connection: Connection, project: str) -> bool:
    """Tell whether a worker of a project is there to compute."""
    found = present(connection, WORKER)
    return any(one.detail.get("project") == project and one.state != "stopping" for one in found)


def _worker(row: Row[Any]) -> Worker:
    return Worker(row.id, row.kind, row.owner, row.state, row.started_at, row.renewed_at, json.loads(row.detail))
