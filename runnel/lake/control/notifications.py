"""Record notifications about alarms, and mutes, which hold them back.

A service claims a notification before it sends it, so that only one service sends it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from runnel.lake.catalog import schema
from runnel.lake.catalog.database import Database, format_time
from runnel.lake.control.alarms import OVER, Alarm
from runnel.lake.control.declarations import AlertDeclaration

RETRY_DELAYS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0)  # before the second try, the third, and so on
_CLAIM_SECONDS = 120.0  # longer than any channel needs to send
_TABLE, _COLUMNS = schema.notifications, schema.notifications.c


@dataclass(frozen=True)
class Notification:
    """A notification about an alarm, sent or to be sent. `problem` is why the last try failed."""

    alarm: Alarm
    alert: str
    word: str
    tries: int = 0
    next_at: str = ""
    told_at: str | None = None
    problem: str | None = None

    @property
    def is_open(self) -> bool:
        """Return whether sending will be tried again."""
        return self.told_at is None and self.tries <= len(RETRY_DELAYS)


@dataclass(frozen=True)
class Mute:
    """No notifications until a time: about an alarm, by its key, a kind of alarms, or a table."""

    subject: str
    kind: str  # "alarm", "kind" or "table"
    muted_until: str
    muted_by: str

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        return {
            "subject": self.subject,
            "kind": self.kind,
            "muted_until": self.muted_until,
            "muted_by": self.muted_by,
        }


def read_mutes(connection: Connection, now: str) -> list[Mute]:
    """Return the mutes that have not expired, those that end first before the others."""
    columns = schema.mutes.c
    query = sa.select(schema.mutes).where(columns.muted_until > now).order_by(columns.muted_until, columns.subject)
    return [Mute(row.subject, row.kind, row.muted_until, row.muted_by) for row in connection.execute(query)]


def write_mute(connection: Connection, mute: Mute, now: str) -> None:
    """Store a mute in place of an earlier one about the same, and delete those that have expired."""
    columns = schema.mutes.c
    delete_mute(connection, mute)
    connection.execute(schema.mutes.delete().where(columns.muted_until <= now))
    connection.execute(schema.mutes.insert().values(mute.json()))


def delete_mute(connection: Connection, mute: Mute) -> None:
    """Delete a mute."""
    columns = schema.mutes.c
    connection.execute(schema.mutes.delete().where(columns.subject == mute.subject, columns.kind == mute.kind))


def find_mute(alarm: Alarm, mutes: Iterable[Mute]) -> Mute | None:
    """Return the mute that holds back the notifications of an alarm for the longest time. Pure.

    An alarm about several tables is muted only if all of them are.
    """
    by_subject = {(mute.kind, mute.subject): mute for mute in mutes}
    candidates = [by_subject.get(("alarm", alarm.key)), by_subject.get(("kind", alarm.kind))]
    table_mutes = [by_subject.get(("table", table)) for table in alarm.tables]
    if table_mutes and all(table_mutes):
        candidates.append(min((mute for mute in table_mutes if mute is not None), key=lambda mute: mute.muted_until))
    return max((mute for mute in candidates if mute is not None), key=lambda mute: mute.muted_until, default=None)


def list_notifications(connection: Connection, alarms: list[Alarm]) -> list[Notification]:
    """Return the notifications of some alarms, including failed ones."""
    alarms_by_key = {(alarm.key, alarm.number): alarm for alarm in alarms}
    if not alarms:
        return []
    rows = connection.execute(sa.select(_TABLE).where(_COLUMNS.key.in_({alarm.key for alarm in alarms})))
    return [
        _parse_notification(alarms_by_key[row.key, row.number], row)
        for row in rows
        if (row.key, row.number) in alarms_by_key
    ]


def list_due(
    alarms: list[Alarm],
    previous: list[Notification],
    listeners: tuple[AlertDeclaration, ...],
    now: datetime,
    mutes: Iterable[Mute] = (),
) -> list[Notification]:
    """Return the notifications to send now, in order. Pure.

    The end of an alarm is sent only to listeners to whom sending the alarm was tried. An acknowledged alarm causes no
    notification but that of its end, a muted one none at all.
    """
    previous_by_key = {
        (notification.alarm.key, notification.alarm.number, notification.alert, notification.word): notification
        for notification in previous
    }
    active_mutes = [mute for mute in mutes if mute.muted_until > format_time(now)]
    due_notifications = []
    for alarm in alarms:
        is_acknowledged = alarm.acknowledged_at is not None and alarm.current_level != OVER
        if is_acknowledged or find_mute(alarm, active_mutes) is not None:
            continue
        for listener in listeners:
            if not is_relevant(listener, alarm):
                continue
            earlier_words = [
                previous_by_key.get((alarm.key, alarm.number, listener.name, word)) for word in ("warning", "alarm")
            ]
            notification = previous_by_key.get((alarm.key, alarm.number, listener.name, alarm.current_level))
            notification = notification or Notification(alarm, listener.name, alarm.current_level)
            if (
                (alarm.current_level != OVER or any(earlier_words))
                and notification.is_open
                and notification.next_at <= format_time(now)
            ):
                due_notifications.append(notification)
    return due_notifications


def is_relevant(listener: AlertDeclaration, alarm: Alarm) -> bool:
    """Return whether an alarm concerns a listener; an alarm about no particular table concerns all."""
    if alarm.kind not in listener.on:
        return False
    affected_tables = {*alarm.tables, *alarm.blocks}
    return listener.tables is None or not alarm.tables or not affected_tables.isdisjoint(listener.tables)


def claim(db: Database, notification: Notification, now: datetime) -> bool:
    """Claim a notification for sending; return False if another service has claimed it."""
    columns = schema.alarms.c
    alarm_query = (
        sa.select(columns.key)
        .where(columns.key == notification.alarm.key, columns.number == notification.alarm.number)
        .with_for_update()
    )
    values = {"tries": notification.tries + 1, "next_at": format_time(now + timedelta(seconds=_CLAIM_SECONDS))}

    def work(connection: Connection) -> bool:
        if connection.execute(alarm_query).first() is None:
            return False
        tries = connection.execute(sa.select(_COLUMNS.tries).where(_build_row_condition(notification))).scalar()
        if tries is None and not notification.tries:
            new = {
                "key": notification.alarm.key,
                "number": notification.alarm.number,
                "alert": notification.alert,
                "word": notification.word,
            }
            connection.execute(_TABLE.insert().values(**new, **values))
            return True
        if tries is None or tries != notification.tries:
            return False
        connection.execute(_TABLE.update().where(_build_row_condition(notification)).values(values))
        return True

    return db.write(work)


def record_attempt(db: Database, notification: Notification, now: datetime, problem: str | None) -> None:
    """Record that a notification was sent, or why it failed and when to try again."""
    delay_seconds = RETRY_DELAYS[min(notification.tries, len(RETRY_DELAYS) - 1)]
    values: dict[str, Any] = {"problem": problem, "next_at": format_time(now + timedelta(seconds=delay_seconds))}
    if problem is None:
        values["told_at"] = format_time(now)
    db.write(
        lambda connection: connection.execute(_TABLE.update().where(_build_row_condition(notification)).values(values))
    )


def _build_row_condition(notification: Notification) -> "sa.ColumnElement[bool]":
    is_alarm = sa.and_(_COLUMNS.key == notification.alarm.key, _COLUMNS.number == notification.alarm.number)
    return sa.and_(is_alarm, _COLUMNS.alert == notification.alert, _COLUMNS.word == notification.word)


def _parse_notification(alarm: Alarm, row: Row[Any]) -> Notification:
    return Notification(alarm, row.alert, row.word, row.tries, row.next_at, row.told_at, row.problem)
