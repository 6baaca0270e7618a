"""Schedules as the catalog remembers them: what was declared, how far each has come, and whether it is paused."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.errors import Mistake, nearest
from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database
from runnel.lake.control import run_queue
from runnel.names import shown


@dataclass(frozen=True)
class Standing:
    """A schedule: `declared` is what its project says, `cursor` what was queued last, `version` tells changes apart."""

    name: str
    declared: Mapping[str, Any]
    cursor: Mapping[str, Any]
    version: str
    seen_at: str
    paused_at: str | None = None
    paused_by: str | None = None
    gone_at: str | None = None


@dataclass(frozen=True)
class Step:
    """A schedule that goes on: its cursor then, and what is queued with it, in one transaction."""

    standing: Standing
    cursor: Mapping[str, Any]
    entries: tuple[run_queue.Entry, ...] = ()


def declare(db: Database, declared: Iterable[Mapping[str, Any]]) -> None:
    """Note what a project declares now. What it no longer declares stays known, and queues nothing."""
    wanted = {str(one["name"]): _text(one) for one in declared}
    table, columns = schema.schedules, schema.schedules.c

    def work(connection: Connection) -> None:
        now = db.now(connection)
        known = {row.name: row for row in connection.execute(sa.select(table))}
        for name, text in wanted.items():
            if name not in known:
                row = {"name": name, "declared": text, "cursor": "{}", "seen_at": now}
                connection.execute(table.insert().values(row))
            elif known[name].declared != text or known[name].gone_at is not None:
                values: dict[str, Any] = {"declared": text, "gone_at": None}
                if known[name].gone_at is not None or _when(known[name].declared) != _when(text):
                    values |= {"cursor": "{}", "seen_at": now}  # it begins anew: earlier times were not its own
                connection.execute(table.update().where(columns.name == name).values(values))
        gone = [name for name, row in known.items() if name not in wanted and row.gone_at is None]
        if gone:
            connection.execute(table.update().where(columns.name.in_(gone)).values(gone_at=now))

    db.write(work)


def standing(connection: Connection, *, gone: bool = False) -> list[Standing]:
    """Return all schedules by name; those that are no longer declared only if asked for."""
    query = sa.select(schema.schedules).order_by(schema.schedules.c.name)
    if not gone:
        query = query.where(schema.schedules.c.gone_at.is_(None))
    return [_standing(row) for row in connection.execute(query)]


def advance(db: Database, steps: Iterable[Step]) -> list[str]:
    """Let schedules go on, each only from where it was seen; return the ids of what was queued."""
    wanted, table = list(steps), schema.schedules

    def work(connection: Connection) -> list[str]:
        entries: list[run_queue.Entry] = []
        for step in wanted:
            here = sa.and_(table.c.name == step.standing.name, table.c.cursor == step.standing.version)
            is_ours = sa.and_(here, table.c.paused_at.is_(None))
            if connection.execute(table.update().where(is_ours).values(cursor=_text(step.cursor))).rowcount:
                entries += step.entries
        return run_queue.add(connection, db, entries)

    return db.write(work) if wanted else []


def pause(db: Database, name: str, author: str, *, resume: bool = False) -> Standing:
    """Let a schedule queue nothing until it is resumed, or resume it."""

    def work(connection: Connection) -> Standing:
        found = find(connection, name)
        values: dict[str, str | None] = {"paused_at": None, "paused_by": None}
        if not resume:
            values = {"paused_at": found.paused_at or db.now(connection), "paused_by": found.paused_by or author}
        here = schema.schedules.c.name == found.name
        connection.execute(schema.schedules.update().where(here).values(values))
        return find(connection, found.name)

    return db.write(work)


def find(connection: Connection, name: str) -> Standing:
    """Return a schedule, or raise with the nearest name."""
    row = connection.execute(sa.select(schema.schedules).where(schema.schedules.c.name == name)).first()
    if row is not None:
        return _standing(row)
    close = nearest(name, (one.name for one in standing(connection)))
    what = f"there is no schedule {shown(name)}" + (f"; close: `{close}`" if close else "")
    raise Mistake("SCHEDULE_UNKNOWN", what, fix="`runnel schedules` lists them; `runnel up` learns of new ones")


def _when(declared: str) -> list[Any]:
    """Return what of a declaration says when it is due."""
    found = json.loads(declared)
    return [found.get(key) for key in ("cron", "tz", "every", "on_change", "branch")]


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), sort_keys=True)


def _standing(row: Row[Any]) -> Standing:
    return Standing(
        row.name,
        json.loads(row.declared),
        json.loads(row.cursor),
        row.cursor,
        row.seen_at,
        row.paused_at,
        row.paused_by,
        row.gone_at,
    )
