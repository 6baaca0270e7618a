"""Send events of OpenLineage from a thread of its own, with the official client.

Nobody waits for it: where a server is away or slow, events are dropped, and that is told once until it is back. Events
are made in this thread too, so that a run takes the time for neither.
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

    Make = Callable[[], RunEvent]

LOG = logging.getLogger("runnel.openlineage")
_MOST = 1000  # events that wait
_AWAY_SECONDS = 10.0  # after a failure nothing is tried for so long
_END_SECONDS = 3.0
_TIMEOUT_SECONDS = 3.0
_RETRY = {"total": 1, "read": 0, "connect": 1, "backoff_factor": 0.1}
_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
_SENDERS: "dict[LineageSettings, Sender]" = {}
_GUARD = threading.Lock()


def sender_of(settings: "LineageSettings") -> "Sender | None":
    """Return what sends events, one for each place; None where nobody wants any."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").lower() == "true" or not (settings.url or _is_in_environment()):
        return None
    with _GUARD:
        if settings not in _SENDERS:
            _SENDERS[settings] = Sender(settings)
        return _SENDERS[settings]


def _is_in_environment() -> bool:
    return any(name.startswith(_VARIABLES) for name in os.environ)


class Sender:
    """What sends events to one place, in order."""

    def __init__(self, settings: "LineageSettings") -> None:
        self.settings = settings
        self._waiting: queue.Queue[tuple[Make, Callable[[str], None]]] = queue.Queue(_MOST)
        self._idle = threading.Condition()
        self._open = 0
        self._away_until = 0.0
        self._is_told = False
        self._client: OpenLineageClient | None = None
        threading.Thread(target=self._go, name="runnel openlineage", daemon=True).start()
        shutdown.register(self.flush)

    def namespace(self, project: str, branch: str) -> str:
        """Return the namespace of a branch: that of `main` is the one that people know."""
        base = self.settings.namespace or project
        return base if branch == "main" else f"{base}/{branch}"

    def send(self, make: "Make", tell: Callable[[str], None]) -> None:
        """Send an event soon, if there is room for it. `tell` is told, once, that events don't arrive."""
        with self._idle:
            self._open += 1
        try:
            self._waiting.put_nowait((make, tell))
        except queue.Full:
            self._done()
            self._missed(tell, f"more than {_MOST:,} of them wait")

    def flush(self, seconds: float = _END_SECONDS) -> bool:
        """Wait until everything was sent or dropped, so long at most; tell whether it was."""
        with self._idle:
            return self._idle.wait_for(lambda: self._open <= 0, seconds)

    def _go(self) -> None:
        while True:
            make, tell = self._waiting.get()
            try:
                if time.monotonic() >= self._away_until:
                    self._emit(make)
            except Exception as error:  # whatever it is, runs go on
                self._away_until = time.monotonic() + _AWAY_SECONDS
                self._missed(tell, str(error))
            self._done()

    def _emit(self, make: "Make") -> None:
        if self._client is None:
            self._client = client_of(self.settings)
        self._client.emit(make())
        if self._is_told:
            LOG.info("OpenLineage events arrive again at %s", self._where)
        self._is_told = False

    def _done(self) -> None:
        with self._idle:
            self._open -= 1
            self._idle.notify_all()

    def _missed(self, tell: Callable[[str], None], why: str) -> None:
        if self._is_told:
            return
        self._is_told = True
        text = f"OpenLineage events don't arrive at {self._where} and are dropped: {why[:300]}"
        LOG.warning(text)
        tell(text)

    @property
    def _where(self) -> str:
        return self.settings.url or "the place that the environment names"


def client_of(settings: "LineageSettings") -> "OpenLineageClient":
    """Return the official client; its own variables win over the settings, as variables do everywhere."""
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
