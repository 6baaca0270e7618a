"""Send OpenLineage events from a background thread, with the official client.

Runs never wait for it: if a server is unreachable or slow, events are dropped, with one warning until it is back. The
thread also builds the events, so that this takes no time of a run.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runnel import shutdown

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

    from runnel.declare.observability_settings import LineageSettings

    MakeEvent = Callable[[], RunEvent]

LOG = logging.getLogger("runnel.openlineage")
_MOST = 1000  # queued events
_AWAY_SECONDS = 10.0  # pause after a failure
_END_SECONDS = 3.0
_TIMEOUT_SECONDS = 3.0
_RETRY = {"total": 1, "read": 0, "connect": 1, "backoff_factor": 0.1}
_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
_SENDERS: "dict[LineageSettings, LineageSender]" = {}
_GUARD = threading.Lock()


def get_sender(settings: "LineageSettings") -> "LineageSender | None":
    """Return the sender for these settings, shared within the process; None if lineage is not configured."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").lower() == "true" or not (settings.url or _is_in_environment()):
        return None
    with _GUARD:
        if settings not in _SENDERS:
            _SENDERS[settings] = LineageSender(settings)
        return _SENDERS[settings]


def _is_in_environment() -> bool:
    return any(name.startswith(_VARIABLES) for name in os.environ)


class LineageSender:
    """Send events to one destination, in order."""

    def __init__(self, settings: "LineageSettings") -> None:
        self.settings = settings
        self._pending: queue.Queue[tuple[MakeEvent, Callable[[str], None]]] = queue.Queue(_MOST)
        self._idle = threading.Condition()
        self._unsent = 0
        self._paused_until = 0.0
        self._has_warned = False
        self._client: OpenLineageClient | None = None
        threading.Thread(target=self._send_forever, name="runnel openlineage", daemon=True).start()
        shutdown.register(self.flush)

    def namespace(self, project: str, branch: str) -> str:
        """Return the namespace of a branch; `main` has the plain one."""
        base = self.settings.namespace or project
        return base if branch == "main" else f"{base}/{branch}"

    def send(self, make_event: "MakeEvent", report: Callable[[str], None]) -> None:
        """Queue an event, or drop it if the queue is full. `report` is called once when events don't arrive."""
        with self._idle:
            self._unsent += 1
        try:
            self._pending.put_nowait((make_event, report))
        except queue.Full:
            self._count_as_done()
            self._warn_dropped(report, f"more than {_MOST:,} events are waiting")

    def flush(self, seconds: float = _END_SECONDS) -> bool:
        """Wait until all events were sent or dropped, at most so many seconds; tell whether they were."""
        with self._idle:
            return self._idle.wait_for(lambda: self._unsent <= 0, seconds)

    def _send_forever(self) -> None:
        while True:
            make_event, report = self._pending.get()
            try:
                if time.monotonic() >= self._paused_until:
                    self._emit_event(make_event)
            except Exception as error:  # must not affect runs
                self._paused_until = time.monotonic() + _AWAY_SECONDS
                self._warn_dropped(report, str(error))
            self._count_as_done()

    def _emit_event(self, make_event: "MakeEvent") -> None:
        if self._client is None:
            self._client = make_client(self.settings)
        self._client.emit(make_event())
        if self._has_warned:
            LOG.info("OpenLineage events are delivered again to %s", self._destination)
        self._has_warned = False

    def _count_as_done(self) -> None:
        with self._idle:
            self._unsent -= 1
            self._idle.notify_all()

    def _warn_dropped(self, report: Callable[[str], None], why: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        text = f"OpenLineage events can't be delivered to {self._destination} and are dropped: {why[:300]}"
        LOG.warning(text)
        report(text)

    @property
    def _destination(self) -> str:
        return self.settings.url or "the address in the environment variables"


def make_client(settings: "LineageSettings") -> "OpenLineageClient":
    """Return the official client; its environment variables override the settings."""
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import set_producer

    from runnel import __version__

    set_producer(f"urn:runnel:{__version__}")
    if _is_in_environment():
        return OpenLineageClient()
    config: dict[str, Any]
    if settings.url.startswith("file:"):
        path = "/" + settings.url.removeprefix("file:").lstrip("/")
        config = {"type": "file", "log_file_path": path, "append": True}
    else:
        config = {"type": "http", "url": settings.url, "timeout": _TIMEOUT_SECONDS, "retry": _RETRY}
        if settings.api_key:
            config["auth"] = {"type": "api_key", "apiKey": settings.api_key}
    return OpenLineageClient(config={"transport": config})
