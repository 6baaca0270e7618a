"""List the alarms of a lake with the notifications that were sent for them."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from runnel.lake.control import alarms as catalog_alarms
from runnel.lake.control import notifications

if TYPE_CHECKING:
    from runnel.client.lake import Lake
    from runnel.lake.control.alarms import Alarm
    from runnel.lake.control.notifications import Notification


@dataclass(frozen=True)
class AlarmStatus:
    """An alarm, open or resolved, with its notifications."""

    alarm: "Alarm"
    notifications: "tuple[Notification, ...]" = ()

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
        return {**self.alarm.json(), "told": notifications}

    def lines(self) -> list[str]:
        """Return what people read."""
        alarm = self.alarm
        lines = [f"{alarm.level}: {alarm.what}", f"  since {alarm.since[:19].replace('T', ' ')} UTC"]
        lines += [f"  blocks {', '.join(alarm.blocks)}"] if alarm.blocks else []
        lines += [f"  to do: {alarm.fix}"]
        return lines + [
            f"  could not be sent to {notification.alert}: {notification.problem}"
            for notification in self.notifications
            if notification.problem
        ]


def list_open_alarms(lake: "Lake") -> list[AlarmStatus]:
    """Return all open alarms, the oldest first."""
    return list_alarms(lake, "open")


def list_alarms(lake: "Lake", state: Literal["open", "over", "all"]) -> list[AlarmStatus]:
    """Return open alarms, the oldest first, resolved ones, the newest first, or the open ones and then the resolved."""
    with lake.store.db.read_transaction() as connection:
        all_alarms = catalog_alarms.read_alarms(connection, over_after=None if state == "open" else "")
        unresolved = [record for record in all_alarms if record.over_at is None and state != "over"]
        resolved = [record for record in reversed(all_alarms) if record.over_at is not None]
        selected = [*unresolved, *resolved]
        latest_notifications = defaultdict[tuple[str, int], list["Notification"]](list)
        for record in notifications.list_notifications(connection, selected):
            latest_notifications[record.alarm.key, record.alarm.number].append(record)
    return [AlarmStatus(record, tuple(latest_notifications[record.key, record.number])) for record in selected]
