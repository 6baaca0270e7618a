"""Send alarm notifications to the declared alerts: once when an alarm is raised, and once when it is over.

Each alert has a thread of its own while notifications are due, so that a slow one delays no other.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.catalog.database import format_time, parse_time, read_clock
from runnel.lake.control import alarms, declarations, notifications
from runnel.service.alarms.command_channel import run_command
from runnel.service.alarms.email_channel import send_email
from runnel.service.alarms.message import AlarmMessage
from runnel.service.alarms.webhook_channel import post_alarm

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database
    from runnel.lake.control.declarations import AlertDeclaration
    from runnel.lake.control.notifications import Notification

LOG = logging.getLogger("runnel.alerts")
_MAX_AGE = timedelta(days=1)  # of an ended alarm: older ones cause no notification
DueNotifications = list[tuple["AlertDeclaration", list["Notification"]]]


class Notifier:
    """Sends the due notifications. `clock_now` is by default the database's clock; `root` is the project's folder."""

    def __init__(
        self, db: "Database", project: str, root: Path, clock_now: Callable[[], datetime] | None = None
    ) -> None:
        self._db = db
        self._project = project
        self._root = root
        self._clock_now = clock_now or (lambda: parse_time(db.read(read_clock)))
        self._threads: dict[str, threading.Thread] = {}

    def start_due_notifications(self) -> None:
        """Start a thread for each alert that has due notifications."""
        now = self._clock_now()
        self._threads = {name: thread for name, thread in self._threads.items() if thread.is_alive()}
        for listener, due_notifications in self._db.read(lambda connection: _find_due_notifications(connection, now)):
            if listener.name not in self._threads:
                name = f"runnel alert {listener.name}"
                thread = threading.Thread(
                    target=self._notify_all, args=(listener, due_notifications), name=name, daemon=True
                )
                self._threads[listener.name] = thread
                thread.start()

    def finish(self, seconds: float = 5.0) -> None:
        """Wait up to `seconds` for each alert that is being notified."""
        for thread in list(self._threads.values()):
            thread.join(seconds)

    def _notify_all(self, listener: "AlertDeclaration", due_notifications: "list[Notification]") -> None:
        for notification in due_notifications:
            try:
                self._notify(listener, notification)
            except RunnelError as error:  # the database is unreachable; the claim expires by itself
                LOG.warning("alert %s: %s", listener.name, error)

    def _notify(self, listener: "AlertDeclaration", notification: "Notification") -> None:
        if not notifications.claim(self._db, notification, self._clock_now()):
            return
        problem = None
        try:
            self._send(listener, AlarmMessage(notification.alarm, notification.word, self._project))
        except RunnelError as error:
            problem = error.what
        except Exception as error:  # a bad declaration must not stop the other notifications
            LOG.error("alert %s", listener.name, exc_info=error)
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            LOG.warning("alert %s could not be notified of %s: %s", listener.name, notification.alarm.key, problem)
        notifications.record_attempt(self._db, notification, self._clock_now(), problem)

    def _send(self, listener: "AlertDeclaration", message: AlarmMessage) -> None:
        channel = listener.channel
        if "webhook" in channel:
            post_alarm(channel, message)
        elif "email" in channel:
            send_email(channel, message)
        else:
            run_command(str(channel["command"]), message, self._root)


def _find_due_notifications(connection: "Connection", now: datetime) -> DueNotifications:
    """Return the notifications that are due, by alert."""
    listeners = declarations.read_declarations(connection).alerts
    if not listeners:
        return []
    recent_alarms = alarms.read_alarms(connection, over_after=format_time(now - _MAX_AGE))
    by_alert = defaultdict[str, list["Notification"]](list)
    previous = notifications.list_notifications(connection, recent_alarms)
    mutes = notifications.read_mutes(connection, format_time(now))
    for notification in notifications.list_due(recent_alarms, previous, listeners, now, mutes):
        by_alert[notification.alert].append(notification)
    return [(listener, by_alert[listener.name]) for listener in listeners if by_alert[listener.name]]
