"""Store alarms: what is wrong, since when, and when it ended.

A monitor passes in everything that is wrong now: new alarms are raised, missing ones are ended. Several monitors may
run at once; an alarm is still raised once, because the lake's lock is held.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time
from runnel.lake.catalog.lock import lock_lake

WARNING, ALARM, OVER = "warning", "alarm", "over"
_TABLE, _COLUMNS = schema.alarms, schema.alarms.c


@dataclass(frozen=True)
class Alarm:
    """A problem. `tables` are the tables it concerns, `blocks` what waits for them, `fix` what to do about it.

    `number` counts the alarms with this key, this one included.
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
    def current_level(self) -> str:
        """Return the level to notify: `over` once the alarm has ended, else `level`."""
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


def update_alarms(db: Database, current_alarms: Iterable[Alarm], now: datetime) -> None:
    """Raise new alarms, update those that changed, and end those that are not in `current_alarms` any more."""
    alarms_by_key = {alarm.key: alarm for alarm in current_alarms}

    def has_changes(connection: Connection) -> bool:
        open_alarms = {alarm.key: alarm for alarm in read_alarms(connection)}
        return open_alarms.keys() != alarms_by_key.keys() or any(
            _update_alarm(open_alarms[key], alarm) != open_alarms[key] for key, alarm in alarms_by_key.items()
        )

    def work(connection: Connection) -> None:
        lock_lake(connection)
        open_alarms = {alarm.key: alarm for alarm in read_alarms(connection)}
        for key, alarm in alarms_by_key.items():
            if key not in open_alarms:
                _insert_alarm(connection, alarm)
            elif (updated := _update_alarm(open_alarms[key], alarm)) != open_alarms[key]:
                values = {"level": updated.level, "since": updated.since, "detail": _detail_json(updated)}
                connection.execute(_TABLE.update().where(_row_condition(updated)).values(values))
        for key in open_alarms.keys() - alarms_by_key.keys():
            connection.execute(_TABLE.update().where(_row_condition(open_alarms[key])).values(over_at=format_time(now)))

    if db.read(has_changes):  # else there is nothing to write, and nothing is locked
        db.write(work)


def read_alarms(connection: Connection, *, over_after: str | None = None) -> list[Alarm]:
    """Return the open alarms, oldest first; with `over_after` also those that ended after that time."""
    is_open = _COLUMNS.over_at.is_(None)
    condition = is_open if over_after is None else sa.or_(is_open, _COLUMNS.over_at > over_after)
    query = sa.select(_TABLE).where(condition).order_by(_COLUMNS.since, _COLUMNS.key, _COLUMNS.number)
    return [_alarm_from_row(row) for row in connection.execute(query)]


def delete_old(db: Database, seconds: float, now: datetime) -> int:
    """Delete alarms that ended more than `seconds` ago, with their notifications; return how many."""
    is_expired = sa.and_(
        _COLUMNS.over_at.is_not(None), _COLUMNS.over_at < format_time(now - timedelta(seconds=seconds))
    )

    def work(connection: Connection) -> int:
        expired_alarms = connection.execute(sa.select(_COLUMNS.key, _COLUMNS.number).where(is_expired)).all()
        for key, number in expired_alarms:
            for table in (schema.notifications, _TABLE):
                connection.execute(table.delete().where(table.c.key == key, table.c.number == number))
        return len(expired_alarms)

    return db.write(work)


def _update_alarm(open_alarm: Alarm, reported: Alarm) -> Alarm:
    """Return an open alarm with what is reported now. It keeps its start, unless a warning became an alarm."""
    has_come_true = open_alarm.level == WARNING and reported.level == ALARM
    level = reported.level if open_alarm.level == WARNING else open_alarm.level
    return replace(
        reported, since=reported.since if has_come_true else open_alarm.since, number=open_alarm.number, level=level
    )


def _insert_alarm(connection: Connection, alarm: Alarm) -> None:
    last_number = connection.execute(sa.select(sa.func.max(_COLUMNS.number)).where(_COLUMNS.key == alarm.key)).scalar()
    values = {
        "key": alarm.key,
        "number": (last_number or 0) + 1,
        "kind": alarm.kind,
        "level": alarm.level,
        "since": alarm.since,
    }
    connection.execute(_TABLE.insert().values(**values, detail=_detail_json(alarm)))


def _row_condition(alarm: Alarm) -> "sa.ColumnElement[bool]":
    return sa.and_(_COLUMNS.key == alarm.key, _COLUMNS.number == alarm.number)


def _detail_json(alarm: Alarm) -> str:
    return json.dumps(
        {"what": alarm.what, "tables": alarm.tables, "blocks": alarm.blocks, "fix": alarm.fix, "run": alarm.run},
        sort_keys=True,
    )


def _alarm_from_row(row: Row[Any]) -> Alarm:
    detail = json.loads(row.detail)
    return Alarm(
        row.key,
        row.kind,
        detail["what"],
        row.since,
        row.level,
        tuple(detail["tables"]),
        tuple(detail["blocks"]),
        detail["fix"],
        detail["run"],
        row.number,
        row.over_at,
    )
