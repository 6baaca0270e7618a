"""Whom alarms were told. Who is about to tell one claims it first, so that several services tell it once."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, stamp
from runnel.lake.control.alarms import OVER, Alarm
from runnel.lake.control.declarations import Listener

PAUSES = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)  # before the second try, the third, and so on
_CLAIM_SECONDS = 120.0  # longer than any way to tell takes
_TABLE, _C = schema.tellings, schema.tellings.c


@dataclass(frozen=True)
class Telling:
    """An alarm that is to be told, or was. `problem` is why the last try failed."""

    alarm: Alarm
    alert: str
    word: str
    tries: int = 0
    next_at: str = ""
    told_at: str | None = None
    problem: str | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether it will be tried."""
        return self.told_at is None and self.tries <= len(PAUSES)


def tellings(connection: Connection, found: list[Alarm]) -> list[Telling]:
    """Return whom some alarms were told, or could not be."""
    known = {(one.key, one.number): one for one in found}
    if not found:
        return []
    rows = connection.execute(sa.select(_TABLE).where(_C.key.in_({one.key for one in found})))
    return [_telling(known[row.key, row.number], row) for row in rows if (row.key, row.number) in known]


def due(found: list[Alarm], known: list[Telling], listeners: tuple[Listener, ...], now: datetime) -> list[Telling]:
    """Return what is to be told now, in order. Pure.

    That something is over is told to those whom somebody tried to tell that it was wrong.
    """
    tried = {(one.alarm.key, one.alarm.number, one.alert, one.word): one for one in known}
    wanted = []
    for alarm in found:
        for listener in listeners:
            if not concerns(listener, alarm):
                continue
            before = [tried.get((alarm.key, alarm.number, listener.name, word)) for word in ("warning", "alarm")]
            one = tried.get((alarm.key, alarm.number, listener.name, alarm.word))
            one = one or Telling(alarm, listener.name, alarm.word)
            if (alarm.word != OVER or any(before)) and one.is_open and one.next_at <= stamp(now):
                wanted.append(one)
    return wanted


def concerns(listener: Listener, alarm: Alarm) -> bool:
    """Tell whether somebody wants to be told of an alarm; one that is about no table in particular is for all."""
    if alarm.kind not in listener.on:
        return False
    about = {*alarm.tables, *alarm.blocks}
    return listener.tables is None or not alarm.tables or not about.isdisjoint(listener.tables)


def claim(db: Database, one: Telling, now: datetime) -> bool:
    """Take it upon us to tell; False where another has."""
    alarm = schema.alarms.c
    row_of = sa.select(alarm.key).where(alarm.key == one.alarm.key, alarm.number == one.alarm.number).with_for_update()
    values = {"tries": one.tries + 1, "next_at": stamp(now + timedelta(seconds=_CLAIM_SECONDS))}

    def work(connection: Connection) -> bool:
        if connection.execute(row_of).first() is None:
            return False
        tries = connection.execute(sa.select(_C.tries).where(_here(one))).scalar()
        if tries is None and not one.tries:
            new = {"key": one.alarm.key, "number": one.alarm.number, "alert": one.alert, "word": one.word}
            connection.execute(_TABLE.insert().values(**new, **values))
            return True
        if tries is None or tries != one.tries:
            return False
        connection.execute(_TABLE.update().where(_here(one)).values(values))
        return True

    return db.write(work)


def note(db: Database, one: Telling, now: datetime, problem: str | None) -> None:
    """Note that something was told, or why it could not be; it is tried again later then."""
    pause = PAUSES[min(one.tries, len(PAUSES) - 1)]
    values: dict[str, Any] = {"problem": problem, "next_at": stamp(now + timedelta(seconds=pause))}
    if problem is None:
        values["told_at"] = stamp(now)
    db.write(lambda connection: connection.execute(_TABLE.update().where(_here(one)).values(values)))


def _here(one: Telling) -> "sa.ColumnElement[bool]":
    at = sa.and_(_C.key == one.alarm.key, _C.number == one.alarm.number)
    return sa.and_(at, _C.alert == one.alert, _C.word == one.word)


def _telling(alarm: Alarm, row: Row[Any]) -> Telling:
    return Telling(alarm, row.alert, row.word, row.tries, row.next_at, row.told_at, row.problem)
