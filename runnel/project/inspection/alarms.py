"""List the alarms of a lake with the notifications that were sent for them."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from runnel.errors import plural
from runnel.lake.catalog.database import read_clock
from runnel.lake.control import alarms as catalog_alarms
from runnel.lake.control import notifications

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.client.lake_reader import LakeReader
    from runnel.lake.control.alarms import Alarm
    from runnel.lake.control.notifications import Mute, Notification

AlarmState = Literal["open", "over", "all"]
_MOST_DETAILS = 5


@dataclass(frozen=True)
class AlarmStatus:
    """An alarm, open or resolved, with its notifications, and until when and by whom it is muted."""

    alarm: "Alarm"
    notifications: "tuple[Notification, ...]" = ()
    muted_until: str | None = None
    muted_by: str | None = None

    def json(self) -> dict[str, Any]:
        """Return what scripts rely on."""
        notifications = [
            {
                "alert": notification.alert,
                "told_at": notification.told_at,
                "tries": notification.tries,
                "problem": notification.problem,
            }
            for notification in self.notifications
        ]
        muted = {"muted_until": self.muted_until, "muted_by": self.muted_by}
        return {**self.alarm.json(), **muted, "told": notifications}

    def lines(self) -> list[str]:
        """Return what people read."""
        alarm = self.alarm
        if alarm.over_at is not None:
            return self._past_lines()
        details = alarm.details
        lines = [f"{alarm.level}: {alarm.headline}", *(f"    {detail}" for detail in details[:_MOST_DETAILS])]
        if len(details) > _MOST_DETAILS:
            lines += [f"    and {plural(len(details) - _MOST_DETAILS, 'more line')} like these"]
        lines += [f"  id {alarm.id}, since {_format_time(alarm.since)}"]
        if alarm.acknowledged_at is not None:
            note = f": {alarm.note}" if alarm.note else ""
            lines += [f"  acknowledged by {alarm.acknowledged_by} at {_format_time(alarm.acknowledged_at)}{note}"]
        if self.muted_until is not None:
            lines += [f"  muted by {self.muted_by} until {_format_time(self.muted_until)}"]
        lines += [f"  blocks {', '.join(alarm.blocks)}"] if alarm.blocks else []
        lines += [f"  to do: {alarm.fix}"]
        return lines + [
            f"  could not be sent to {notification.alert}: {notification.problem}"
            for notification in self.notifications
            if notification.problem
        ]

    def _past_lines(self) -> list[str]:
        alarm = self.alarm
        lines = [
            f"over: {alarm.headline}",
            f"  id {alarm.id}, from {_format_time(alarm.since)} to {_format_time(alarm.over_at or '')}",
        ]
        if alarm.dismissed_by is not None:
            lines += [f"  dismissed by {alarm.dismissed_by}{f': {alarm.note}' if alarm.note else ''}"]
        return lines


def list_open_alarms(lake: "LakeReader") -> list[AlarmStatus]:
    """Return all open alarms, the oldest first."""
    return list_alarms(lake, "open")


def list_alarms(lake: "LakeReader", state: AlarmState) -> list[AlarmStatus]:
    """Return open alarms, the oldest first, resolved ones, the newest first, or the open ones and then the resolved."""
    with lake.store.db.read_transaction() as connection:
        all_alarms = catalog_alarms.read_alarms(connection, over_after=None if state == "open" else "")
        unresolved = [record for record in all_alarms if record.over_at is None and state != "over"]
        resolved = [record for record in reversed(all_alarms) if record.over_at is not None]
        return _add_notifications(connection, [*unresolved, *resolved])


def read_alarm_status(connection: "Connection", alarm: "Alarm") -> AlarmStatus:
    """Return an alarm as it is in the catalog now."""
    identity = (alarm.key, alarm.number)
    all_alarms = catalog_alarms.read_alarms(connection, over_after="")
    current_alarm = next(record for record in all_alarms if (record.key, record.number) == identity)
    return _add_notifications(connection, [current_alarm])[0]


def _add_notifications(connection: "Connection", selected: "list[Alarm]") -> list[AlarmStatus]:
    mutes = notifications.read_mutes(connection, read_clock(connection))
    latest_notifications = defaultdict[tuple[str, int], list["Notification"]](list)
    for record in notifications.list_notifications(connection, selected):
        latest_notifications[record.alarm.key, record.alarm.number].append(record)
    return [_build_status(record, tuple(latest_notifications[record.key, record.number]), mutes) for record in selected]


def _build_status(alarm: "Alarm", sent: "tuple[Notification, ...]", mutes: "list[Mute]") -> AlarmStatus:
    mute = notifications.find_mute(alarm, mutes) if alarm.over_at is None else None
    return AlarmStatus(alarm, sent, mute.muted_until if mute else None, mute.muted_by if mute else None)


def _format_time(at: str) -> str:
    """Return a stored time for people.

    >>> _format_time("2026-01-02T08:00:00.000000Z")
    '2026-01-02 08:00:00 UTC'
    """
    return f"{at[:19].replace('T', ' ')} UTC"
