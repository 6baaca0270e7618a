"""Record schedules in the catalog: what was declared, the cursor of each, and whether it is paused."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Mistake, did_you_mean
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.control import queue_entry, run_queue
from runnel.names import quote_value


@dataclass(frozen=True)
class ScheduleRecord:
    """A schedule: `declared` is its declaration, `cursor` what was queued last, `version` the cursor as stored."""

    name: str
    declared: Mapping[str, Any]
    cursor: Mapping[str, Any]
    version: str
    seen_at: str
    paused_at: str | None = None
    paused_by: str | None = None
    gone_at: str | None = None


@dataclass(frozen=True)
class ScheduleAdvance:
    """The advance of a schedule: its new cursor, and the requests that are queued in the same transaction."""

    schedule: ScheduleRecord
    cursor: Mapping[str, Any]
    entries: tuple[queue_entry.QueueRequest, ...] = ()


def declare(db: Database, declared: Iterable[Mapping[str, Any]]) -> None:
    """Record the schedules that a project declares. One that is no longer declared is kept, but queues nothing."""
    declared_texts = {str(declaration["name"]): _to_json(declaration) for declaration in declared}
    table, columns = schema.schedules, schema.schedules.c

    def work(connection: Connection) -> None:
        now = db.now(connection)
        existing_rows = {row.name: row for row in connection.execute(sa.select(table))}
        for name, text in declared_texts.items():
            if name not in existing_rows:
                row = {"name": name, "declared": text, "cursor": "{}", "seen_at": now}
                connection.execute(table.insert().values(row))
            elif existing_rows[name].declared != text or existing_rows[name].gone_at is not None:
                values: dict[str, Any] = {"declared": text, "gone_at": None}
                if existing_rows[name].gone_at is not None or _read_timing(
                    existing_rows[name].declared
                ) != _read_timing(text):
                    values |= {"cursor": "{}", "seen_at": now}  # it starts over with its new timing
                connection.execute(table.update().where(columns.name == name).values(values))
        removed_names = [
            name for name, row in existing_rows.items() if name not in declared_texts and row.gone_at is None
        ]
        if removed_names:
            connection.execute(table.update().where(columns.name.in_(removed_names)).values(gone_at=now))

    db.write(work)


def list_schedules(connection: Connection, *, include_removed: bool = False) -> list[ScheduleRecord]:
    """Return all schedules ordered by name; with `include_removed` also those that are no longer declared."""
    query = sa.select(schema.schedules).order_by(schema.schedules.c.name)
    if not include_removed:
        query = query.where(schema.schedules.c.gone_at.is_(None))
    return [_parse_schedule(row) for row in connection.execute(query)]


def advance(db: Database, advances: Iterable[ScheduleAdvance]) -> list[str]:
    """Advance schedules, each only if its cursor is unchanged; return the ids of the queued entries."""
    pending, table = list(advances), schema.schedules

    def work(connection: Connection) -> list[str]:
        entries: list[queue_entry.QueueRequest] = []
        for step in pending:
            is_unchanged = sa.and_(table.c.name == step.schedule.name, table.c.cursor == step.schedule.version)
            can_advance = sa.and_(is_unchanged, table.c.paused_at.is_(None))
            if connection.execute(table.update().where(can_advance).values(cursor=_to_json(step.cursor))).rowcount:
                entries += step.entries
        return run_queue.add(connection, db, entries)

    return db.write(work) if pending else []


def pause(db: Database, name: str, author: str, *, resume: bool = False) -> ScheduleRecord:
    """Pause a schedule, or resume it; a paused schedule queues nothing."""

    def work(connection: Connection) -> ScheduleRecord:
        schedule = find(connection, name)
        values: dict[str, str | None] = {"paused_at": None, "paused_by": None}
        if not resume:
            values = {"paused_at": schedule.paused_at or db.now(connection), "paused_by": schedule.paused_by or author}
        is_schedule = schema.schedules.c.name == schedule.name
        connection.execute(schema.schedules.update().where(is_schedule).values(values))
        return find(connection, schedule.name)

    return db.write(work)


def find(connection: Connection, name: str) -> ScheduleRecord:
    """Return a schedule, or raise with the nearest name."""
    row = connection.execute(sa.select(schema.schedules).where(schema.schedules.c.name == name)).first()
    if row is not None:
        return _parse_schedule(row)
    what = f"there is no schedule {quote_value(name)}" + did_you_mean(
        name, (schedule.name for schedule in list_schedules(connection))
    )
    raise Mistake("SCHEDULE_UNKNOWN", what, fix="`runnel schedules` lists them; `runnel up` loads new ones")


def _read_timing(declared: str) -> list[Any]:
    """Return the options of a declaration that determine when it is due."""
    options = json.loads(declared)
    return [options.get(key) for key in ("cron", "tz", "every", "on_change", "branch")]


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), sort_keys=True)


def _parse_schedule(row: Row[Any]) -> ScheduleRecord:
    return ScheduleRecord(
        row.name,
        json.loads(row.declared),
        json.loads(row.cursor),
        row.cursor,
        row.seen_at,
        row.paused_at,
        row.paused_by,
        row.gone_at,
    )
