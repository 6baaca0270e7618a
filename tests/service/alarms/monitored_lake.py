"""A lake whose clock the test sets, and what may go wrong with it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import format_time
from runnel.lake.control import alarms, declarations, run_claims, run_queue, schedules
from runnel.lake.control.alarms import Alarm
from runnel.lake.control.declarations import AlertDeclaration, ProjectDeclarations, SinkDeclaration, TableDeclaration
from runnel.lake.control.queue_entry import QueueRequest
from runnel.lake.store import Store
from runnel.model.run_request import RunRequest
from runnel.project.inspection.backlog import list_backlogs
from runnel.service.alarms.monitor import AlarmMonitor

TABLES = {
    "ods.orders": TableDeclaration("ods.orders", readers=("dws.day",), schedules=("nightly",)),
    "dws.day": TableDeclaration("dws.day", readers=("dws.month",), schedules=("nightly",)),
    "dws.month": TableDeclaration("dws.month", schedules=("nightly",)),
}
SINKS = {"dws.month:files-1": SinkDeclaration("dws.month:files-1", "dws.month")}
NIGHTLY = {"name": "nightly", "cron": "0 2 * * *"}


class Site:
    """A lake, a clock, and who looks."""

    def __init__(self, store: Store, at: str = "2026-01-02T01:00") -> None:
        self.store = store
        self.at = datetime.fromisoformat(at).replace(tzinfo=UTC)
        self.watchman = AlarmMonitor(store.db, self.now, list_backlogs=lambda: list_backlogs(store))
        self.declare()
        schedules.declare(store.db, [NIGHTLY])
        self.queued()

    def now(self) -> datetime:
        return self.at

    def pass_(self, **amount: float) -> None:
        self.at += timedelta(**amount)

    def declare(self, *listeners: AlertDeclaration, **deadlines: str) -> None:
        """Declare the tables, with deadlines by the last part of their names, long ago."""
        tables = {
            name: TableDeclaration(name, one.readers, one.schedules, deadlines.get(name.partition(".")[2]))
            for name, one in TABLES.items()
        }
        declarations.write_declarations(self.store.db, ProjectDeclarations(tables, SINKS, listeners))
        self.write(schema.declared.update().values(since="2025-01-01T00:00:00.000000Z"))

    def queued(self) -> None:
        """Let the schedule have queued what was due until now."""
        slot = json.dumps({"slot": format_time(self.at)})
        self.write(schema.schedules.update().values(cursor=slot))

    def look(self) -> list[Alarm]:
        self.watchman.update_alarms()
        return self.open()

    def open(self) -> list[Alarm]:
        return self.store.db.read(alarms.read_alarms)

    def ran(self, cause: str = "schedule/nightly", state: str = "succeeded", seconds: float = 60, **how: Any) -> str:
        """Let a run have begun now, and have ended `seconds` later; return its id."""
        request = RunRequest(tuple(how.get("select", ())), branch=how.get("branch", "main"))
        entry = QueueRequest(request, "ada", cause=cause, retries=0)
        self.store.db.write(lambda connection: run_queue.add(connection, self.store.db, [entry]))
        held = run_claims.claim(self.store.db, "w1")
        assert held is not None and held.id == entry.id
        run_claims.finish(self.store.db, held.claim, state, how.get("outcome", steps(**{"dws.day": state})))
        values = {"started_at": format_time(self.at), "ended_at": format_time(self.at + timedelta(seconds=seconds))}
        self.write(schema.queue.update().where(schema.queue.c.id == entry.id).values(values))
        self.queued()
        self.pass_(seconds=seconds)
        return entry.id

    def wait(self, cause: str = "user") -> str:
        """Let a run wait since now."""
        entry = QueueRequest(RunRequest(), "ada", cause=cause)
        self.store.db.write(lambda connection: run_queue.add(connection, self.store.db, [entry]))
        self.write(schema.queue.update().where(schema.queue.c.id == entry.id).values(queued_at=format_time(self.at)))
        return entry.id

    def write(self, statement: "sa.sql.dml.DMLWhereBase | sa.Update") -> None:
        self.store.db.write(lambda connection: connection.execute(statement))


def steps(**states: str) -> dict[str, Any]:
    """Return the outcome of a run with these steps."""
    error = {"code": "CHECK_FAILED", "what": "3 rows have no seller", "at": None, "fix": "correct the rows"}
    return {
        "steps": [
            {"table": table, "state": state, "error": error if state == "failed" else None}
            for table, state in states.items()
        ]
    }


def keys(found: list[Alarm]) -> list[str]:
    return [one.key for one in found]


Make = Callable[..., Site]
