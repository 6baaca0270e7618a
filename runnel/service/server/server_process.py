"""The service's process: it answers, queues what schedules ask for, looks after what workers left behind, and tells
people when something is wrong.

No Spark and no code of users is in it, so it stays up whatever a driver does.
"""

import logging
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import uvicorn

from runnel.errors import Mistake, RunnelError
from runnel.lake.control import alarms, run_queue, workers
from runnel.service.alarms.monitor import Watchman
from runnel.service.alarms.notifier import Herald
from runnel.service.api.app import make_app
from runnel.service.loop_errors import Problems
from runnel.service.memory_usage import memory_bytes
from runnel.service.server.declaration_check import LoadedFlows
from runnel.service.server.scheduler import Scheduler
from runnel.service.stale_claims import Reaper

if TYPE_CHECKING:
    from runnel.client.lake import Lake

LOG = logging.getLogger("runnel.service")
_TICK_SECONDS, _REAP_SECONDS, _BEAT_SECONDS, _FORGET_SECONDS = 0.25, 1.0, 3.0, 3600.0
_WATCH_SECONDS = 1.0
_KEPT_SECONDS = 30 * 86_400.0  # what ended in the queue, and what was wrong


class Serving:
    """The service of a lake. `host` and `port` are where it answers."""

    def __init__(self, lake: "Lake") -> None:
        self._lake = lake
        self._name = f"{socket.gethostname()[:40]}-{secrets.token_hex(4)}"
        self.stop = threading.Event()
        self._problems = Problems()
        settings = lake.settings
        self._socket = listening(settings.host, settings.port)
        self.url = f"http://{_shown(settings.host)}:{self._socket.getsockname()[1]}"
        self._app = make_app(lake)
        config = uvicorn.Config(self._app, log_config=None, access_log=False, timeout_graceful_shutdown=5)
        self._server = _Server(config)

    def run(self) -> None:
        """Answer until told to stop."""
        store = self._lake.store
        flows, reaper = LoadedFlows(store.db), Reaper(store.db)
        scheduler = Scheduler(store, are_declared=flows.are_declared)
        watchman = Watchman(store.db, schedule_problems=lambda: scheduler.problems, are_declared=flows.are_declared)
        herald = Herald(store.db, self._lake.settings.name, self._lake.settings.root)
        loops = [
            self._every("runnel schedules", _TICK_SECONDS, scheduler.tick),
            self._every("runnel claims", _REAP_SECONDS, reaper.look),
            self._every("runnel presence", _BEAT_SECONDS, self._beat),
            self._every("runnel memory", _FORGET_SECONDS, self._forget),
            self._every("runnel alarms", _WATCH_SECONDS, watchman.look),
            self._every("runnel alerts", _WATCH_SECONDS, herald.look),
        ]
        threading.Thread(target=self._await_stop, name="runnel stop", daemon=True).start()
        self._server.run(sockets=[self._socket])
        self.stop.set()
        for loop in loops:
            loop.join(10)
        herald.finish()
        with suppress(RunnelError):  # others see it by the clock then
            watchman.leave()
            workers.leave(store.db, self._name)

    def _forget(self) -> None:
        """Let go of what ended long ago."""
        db = self._lake.store.db
        run_queue.forget_old(db, _KEPT_SECONDS)
        alarms.forget_old(db, _KEPT_SECONDS, datetime.now(UTC))

    def _await_stop(self) -> None:
        self.stop.wait()
        self._app.state.ending.set()  # whoever listens to events is let go
        self._server.should_exit = True

    def _every(self, name: str, seconds: float, work: Callable[[], object]) -> threading.Thread:
        """Do something again and again; what goes wrong is logged once, shown by `status`, and tried again."""
        part = name.removeprefix("runnel ")

        def loop() -> None:
            while not self.stop.is_set():
                try:
                    work()
                    self._problems.clear(part)
                except Exception as error:  # a database that is away, or a defect: neither may end the loop
                    what = error.what if isinstance(error, RunnelError) else f"{type(error).__name__}: {error}"
                    if self._problems.note(part, what):
                        LOG.error("%s: %s", name, error, exc_info=error)
                self.stop.wait(seconds)

        thread = threading.Thread(target=loop, name=name, daemon=True)
        thread.start()
        return thread

    def _beat(self) -> None:
        settings = self._lake.settings
        told = {"url": self.url, "project": settings.name, "root": str(settings.root)}
        detail = {**told, "memory_bytes": memory_bytes(), "problems": self._problems.json()}
        workers.tell(self._lake.store.db, self._name, workers.SERVICE, "ready", detail)


class _Server(uvicorn.Server):
    """A server that leaves signals to its process."""

    def install_signal_handlers(self) -> None:
        """Leave them alone."""


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or say clearly why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, proto=socket.IPPROTO_TCP)  # said outright, else each answer waits for 40 ms
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        what = f"the service can't listen on {host}:{port}: {(error.strerror or str(error)).lower()}"
        fix = "`runnel down` stops this project's service; RUNNEL__SERVICE__PORT=8471 takes another port"
        raise Mistake("SERVICE_PORT", what, fix=fix) from error
    found.listen(512)
    return found


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
