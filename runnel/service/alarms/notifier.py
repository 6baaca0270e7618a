"""Tell alarms to those who want to know: each once, and again when it is over.

Each alert has a thread of its own while there is something to tell, so that a slow one holds up no other.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.catalog.database import clock, moment, stamp
from runnel.lake.control import alarms, declarations, notifications
from runnel.service.alarms.command_channel import call
from runnel.service.alarms.email_channel import send
from runnel.service.alarms.message import Message
from runnel.service.alarms.webhook_channel import post

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from runnel.lake.catalog.database import Database
    from runnel.lake.control.declarations import Listener
    from runnel.lake.control.notifications import Telling

LOG = logging.getLogger("runnel.alerts")
_OLD = timedelta(days=1)  # what is over for so long is told to nobody any more
Due = list[tuple["Listener", list["Telling"]]]


class Herald:
    """Who tells. `now` is a clock, by default the database's; `root` is the project's folder."""

    def __init__(self, db: "Database", project: str, root: Path, now: Callable[[], datetime] | None = None) -> None:
        self._db = db
        self._project = project
        self._root = root
        self._now = now or (lambda: moment(db.read(clock)))
        self._threads: dict[str, threading.Thread] = {}

    def look(self) -> None:
        """Begin to tell what is due."""
        now = self._now()
        self._threads = {name: thread for name, thread in self._threads.items() if thread.is_alive()}
        for listener, due in self._db.read(lambda connection: _due(connection, now)):
            if listener.name not in self._threads:
                name = f"runnel alert {listener.name}"
                thread = threading.Thread(target=self._tell_all, args=(listener, due), name=name, daemon=True)
                self._threads[listener.name] = thread
                thread.start()

    def finish(self, seconds: float = 5.0) -> None:
        """Wait a little for what is being told."""
        for thread in list(self._threads.values()):
            thread.join(seconds)

    def _tell_all(self, listener: "Listener", due: "list[Telling]") -> None:
        for one in due:
            try:
                self._tell(listener, one)
            except RunnelError as error:  # the database is away; the claim ends by itself
                LOG.warning("alert %s: %s", listener.name, error)

    def _tell(self, listener: "Listener", one: "Telling") -> None:
        if not notifications.claim(self._db, one, self._now()):
            return
        problem = None
        try:
            self._send(listener, Message(one.alarm, one.word, self._project))
        except RunnelError as error:
            problem = error.what
        except Exception as error:  # whatever somebody declared must not end the others
            LOG.error("alert %s", listener.name, exc_info=error)
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            LOG.warning("alert %s could not be told of %s: %s", listener.name, one.alarm.key, problem)
        notifications.note(self._db, one, self._now(), problem)

    def _send(self, listener: "Listener", message: Message) -> None:
        way = listener.way
        if "webhook" in way:
            post(way, message)
        elif "email" in way:
            send(way, message)
        else:
            call(str(way["command"]), message, self._root)


def _due(connection: "Connection", now: datetime) -> Due:
    """Return what is to be told now, and to whom."""
    listeners = declarations.declared(connection).listeners
    if not listeners:
        return []
    found = alarms.alarms(connection, over_after=stamp(now - _OLD))
    grouped = defaultdict[str, list["Telling"]](list)
    for one in notifications.due(found, notifications.tellings(connection, found), listeners, now):
        grouped[one.alert].append(one)
    return [(listener, grouped[listener.name]) for listener in listeners if grouped[listener.name]]
