"""Store the events of a run while it is running, so that other processes can follow it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database


@dataclass(frozen=True)
class RunEvent:
    """One event of a run; numbers count up from 1."""

    number: int
    at: str
    event: Mapping[str, Any]


def add(db: Database, run: str, events: Iterable[Mapping[str, Any]]) -> None:
    """Append events to a run. Only one process may append to a run."""
    texts = [json.dumps(dict(event), sort_keys=True, default=str) for event in events]

    def work(connection: Connection) -> None:
        columns = schema.events.c
        last_number = connection.execute(sa.select(sa.func.max(columns.number)).where(columns.run == run)).scalar() or 0
        now = db.now(connection)
        rows = [
            {"run": run, "number": last_number + offset, "at": now, "event": text}
            for offset, text in enumerate(texts, 1)
        ]
        connection.execute(schema.events.insert(), rows)

    if texts:
        db.write(work)


def read_after(connection: Connection, run: str, number: int = 0, limit: int | None = None) -> list[RunEvent]:
    """Return the events of a run whose number is greater than `number`."""
    columns = schema.events.c
    query = sa.select(schema.events).where(columns.run == run, columns.number > number).order_by(columns.number)
    return [RunEvent(row.number, row.at, json.loads(row.event)) for row in connection.execute(query.limit(limit))]
