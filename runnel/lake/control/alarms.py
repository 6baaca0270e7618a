"""Store alarms: what is wrong, since when, when it ended, and who acknowledged or dismissed it.

A monitor passes in everything that is wrong now: new alarms are raised, missing ones are ended. Several monitors may
run at once; an alarm is still raised once, because the lake's lock is held. A dismissed alarm is not raised again for
the same failure.
"""

import hashlib
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
_ID_LENGTH = 8
_TABLE, _COLUMNS = schema.alarms, schema.alarms.c


@dataclass(frozen=True)
class Alarm:
    """A problem. `tables` are the tables it concerns, `blocks` what waits for them, `fix` what to do about it.

    `number` counts the alarms with this key, this one included. `over_at` is when it ended or a person dismissed it;
    `note` is of the person who acknowledged or dismissed it.
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
    acknowledged_at: str | None = None
    acknowledged_by: str | None = None
    dismissed_at: str | None = None
    dismissed_by: str | None = None
    note: str | None = None

    @property
    def id(self) -> str:
        """Return a short name of this alarm: another one with the same key has another id."""
        return hashlib.sha256(f"{self.key}/{self.number}".encode()).hexdigest()[:_ID_LENGTH]

    @property
    def headline(self) -> str:
        """Return what is wrong, without details such as each bad row."""
        return " ".join(self.what.partition("\n")[0].split())

    @property
    def details(self) -> list[str]:
        """Return the other lines of what is wrong."""
        return [line.strip() for line in self.what.splitlines()[1:] if line.strip()]

    @property
    def current_level(self) -> str:
        """Return the level to notify: `over` once the alarm has ended, else `level`."""
        return OVER if self.over_at is not None else self.level

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "alarm": self.key,
            "id": self.id,
            "number": self.number,
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
            "acknowledged_at": self.acknowledged_at,
            "acknowledged_by": self.acknowledged_by,
            "dismissed_at": self.dismissed_at,
            "dismissed_by": self.dismissed_by,
            "note": self.note,
        }


@dataclass(frozen=True)
class _AlarmChanges:
    """What has to be written: alarms to raise, alarms whose description changed, and alarms that ended."""

    raised: list[Alarm]
    updated: list[Alarm]
    ended: list[Alarm]


def update_alarms(db: Database, current_alarms: Iterable[Alarm], now: datetime) -> None:
    """Raise new alarms, update those that changed, and end those that are not in `current_alarms` any more."""
    reported = {alarm.key: alarm for alarm in current_alarms}

    def has_changes(connection: Connection) -> bool:
        changes = _find_changes(read_active_alarms(connection), reported)
        return bool(changes.raised or changes.updated or changes.ended)

    def work(connection: Connection) -> None:
        lock_lake(connection)
        changes = _find_changes(read_active_alarms(connection), reported)
        for alarm in changes.ended:
            connection.execute(_TABLE.update().where(_row_condition(alarm)).values(over_at=format_time(now)))
        for alarm in changes.updated:
            values = {"level": alarm.level, "since": alarm.since, "detail": _detail_json(alarm)}
            connection.execute(_TABLE.update().where(_row_condition(alarm)).values(values))
        for alarm in changes.raised:
            _insert_alarm(connection, alarm)

    if db.read(has_changes):  # else there is nothing to write, and nothing is locked
        db.write(work)


def read_alarms(connection: Connection, *, over_after: str | None = None) -> list[Alarm]:
    """Return the open alarms, oldest first; with `over_after` also those that ended after that time."""
    closed_at = sa.func.coalesce(_COLUMNS.dismissed_at, _COLUMNS.over_at)
    condition = closed_at.is_(None) if over_after is None else sa.or_(closed_at.is_(None), closed_at > over_after)
    return _read_alarms(connection, condition)


def read_active_alarms(connection: Connection) -> list[Alarm]:
    """Return the alarms whose problem has not ended, oldest first, including dismissed ones."""
    return _read_alarms(connection, _COLUMNS.over_at.is_(None))


def acknowledge(connection: Connection, alarm: Alarm, author: str, now: str, note: str | None) -> None:
    """Record who has seen an alarm and takes care of it."""
    values = {"acknowledged_at": now, "acknowledged_by": author, "note": note or alarm.note}
    connection.execute(_TABLE.update().where(_row_condition(alarm)).values(values))


def dismiss(connection: Connection, alarm: Alarm, author: str, now: str, note: str | None) -> None:
    """Record who closed an alarm. Its row stays active while the problem lasts, so that it is not raised again."""
    values = {"dismissed_at": now, "dismissed_by": author, "note": note or alarm.note}
    connection.execute(_TABLE.update().where(_row_condition(alarm)).values(values))


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


def _read_alarms(connection: Connection, condition: "sa.ColumnElement[bool]") -> list[Alarm]:
    query = sa.select(_TABLE).where(condition).order_by(_COLUMNS.since, _COLUMNS.key, _COLUMNS.number)
    return [_alarm_from_row(row) for row in connection.execute(query)]


def _find_changes(active_alarms: list[Alarm], reported: dict[str, Alarm]) -> _AlarmChanges:
    """Compare the alarms of the catalog with what is wrong now. Pure."""
    active_by_key = {alarm.key: alarm for alarm in active_alarms}
    changes = _AlarmChanges([], [], [active_by_key[key] for key in active_by_key.keys() - reported.keys()])
    for key, alarm in reported.items():
        active = active_by_key.get(key)
        if active is None:
            changes.raised.append(alarm)
        elif active.dismissed_at is None:
            if (updated := _update_alarm(active, alarm)) != active:
                changes.updated.append(updated)
        elif _is_new_failure(active, alarm):
            changes.ended.append(active)
            changes.raised.append(alarm)
    return changes


def _is_new_failure(dismissed: Alarm, reported: Alarm) -> bool:
    """Return whether a report is about another failure than the one that was dismissed.

    That is another run, or a deadline that was missed after the dismissal. Other problems are new once they were over.
    """
    if reported.run is not None:
        return reported.run != dismissed.run
    is_late = reported.kind == "late" and reported.level == ALARM
    return is_late and reported.since > (dismissed.dismissed_at or "")


def _update_alarm(open_alarm: Alarm, reported: Alarm) -> Alarm:
    """Return an open alarm with what is reported now. It keeps its start, unless a warning became an alarm."""
    has_come_true = open_alarm.level == WARNING and reported.level == ALARM
    level = reported.level if open_alarm.level == WARNING else open_alarm.level
    return replace(
        open_alarm,
        what=reported.what,
        since=reported.since if has_come_true else open_alarm.since,
        level=level,
        tables=reported.tables,
        blocks=reported.blocks,
        fix=reported.fix,
        run=reported.run,
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
        row.dismissed_at or row.over_at,
        row.acknowledged_at,
        row.acknowledged_by,
        row.dismissed_at,
        row.dismissed_by,
        row.note,
    )
