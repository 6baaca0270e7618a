"""Alarms: what is wrong, since when, and until when it was.

Whoever looks says what is wrong now; what is new is raised, what is no longer there is over. Several may look at once:
an alarm is raised once, since the lake's lock is held.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, stamp
from runnel.lake.catalog.lock import lock

WARNING, ALARM, OVER = "warning", "alarm", "over"
_TABLE, _C = schema.alarms, schema.alarms.c


@dataclass(frozen=True)
class Alarm:
    """Something that is wrong. `tables` are those it is about, `blocks` what waits for them, `fix` what to do.

    `number` counts how often it was wrong before.
    """

    key: str
    kind: str
    what: str
    since: str
    level: str = ALARM
    tables: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    fix: str = ""
    run: str | None = None
    number: int = 0
    over_at: str | None = None

    @property
    def word(self) -> str:
        """Return what is to be told about it now."""
        return OVER if self.over_at is not None else self.level

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "alarm": self.key,
            "state": "open" if self.over_at is None else OVER,
            "kind": self.kind,
            "level": self.level,
            "what": self.what,
            "since": self.since,
            "over_at": self.over_at,
            "tables": list(self.tables),
            "blocks": list(self.blocks),
            "fix": self.fix,
            "run": self.run,
        }


def settle(db: Database, wrong: Iterable[Alarm], now: datetime) -> None:
    """Raise what is wrong and was not, note what has changed, and end what is wrong no more."""
    wanted = {one.key: one for one in wrong}

    def differs(connection: Connection) -> bool:
        known = {one.key: one for one in alarms(connection)}
        return known.keys() != wanted.keys() or any(
            _merged(known[key], one) != known[key] for key, one in wanted.items()
        )

    def work(connection: Connection) -> None:
        lock(connection)
        known = {one.key: one for one in alarms(connection)}
        for key, one in wanted.items():
            if key not in known:
                _insert(connection, one)
            elif (merged := _merged(known[key], one)) != known[key]:
                values = {"level": merged.level, "since": merged.since, "detail": _detail(merged)}
                connection.execute(_TABLE.update().where(_here(merged)).values(values))
        for key in known.keys() - wanted.keys():
            connection.execute(_TABLE.update().where(_here(known[key])).values(over_at=stamp(now)))

    if db.read(differs):  # else there is nothing to write, and nothing is locked
        db.write(work)


def alarms(connection: Connection, *, over_after: str | None = None) -> list[Alarm]:
    """Return what is wrong now, the oldest first; also what is over since a time, if one is given."""
    is_open = _C.over_at.is_(None)
    wanted = is_open if over_after is None else sa.or_(is_open, _C.over_at > over_after)
    query = sa.select(_TABLE).where(wanted).order_by(_C.since, _C.key, _C.number)
    return [_alarm(row) for row in connection.execute(query)]


def forget_old(db: Database, seconds: float, now: datetime) -> int:
    """Forget what was over long ago, with whom it was told; return how many."""
    old = sa.and_(_C.over_at.is_not(None), _C.over_at < stamp(now - timedelta(seconds=seconds)))

    def work(connection: Connection) -> int:
        gone = connection.execute(sa.select(_C.key, _C.number).where(old)).all()
        for key, number in gone:
            for table in (schema.tellings, _TABLE):
                connection.execute(table.delete().where(table.c.key == key, table.c.number == number))
        return len(gone)

    return db.write(work)


def _merged(known: Alarm, now: Alarm) -> Alarm:
    """Return an alarm as it is now. It is as old as it was known to be, but for a warning that has come true."""
    is_true = known.level == WARNING and now.level == ALARM
    level = now.level if known.level == WARNING else known.level
    return replace(now, since=now.since if is_true else known.since, number=known.number, level=level)


def _insert(connection: Connection, one: Alarm) -> None:
    newest = connection.execute(sa.select(sa.func.max(_C.number)).where(_C.key == one.key)).scalar()
    values = {"key": one.key, "number": (newest or 0) + 1, "kind": one.kind, "level": one.level, "since": one.since}
    connection.execute(_TABLE.insert().values(**values, detail=_detail(one)))


def _here(one: Alarm) -> "sa.ColumnElement[bool]":
    return sa.and_(_C.key == one.key, _C.number == one.number)


def _detail(one: Alarm) -> str:
    return json.dumps(
        {"what": one.what, "tables": one.tables, "blocks": one.blocks, "fix": one.fix, "run": one.run}, sort_keys=True
    )


def _alarm(row: Row[Any]) -> Alarm:
    found = json.loads(row.detail)
    return Alarm(
        row.key,
        row.kind,
        found["what"],
        row.since,
        row.level,
        tuple(found["tables"]),
        tuple(found["blocks"]),
        found["fix"],
        found["run"],
        row.number,
        row.over_at,
    )
