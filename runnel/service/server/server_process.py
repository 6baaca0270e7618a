"""Run the server process: REST API, scheduler, release of stale claims, alarms and notifications.

It runs neither Spark nor user code, so it stays up whatever a Spark driver does.
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
from runnel.project.inspection.backlog import list_backlogs
from runnel.service.alarms.monitor import AlarmMonitor
from runnel.service.alarms.notifier import Notifier
from runnel.service.api.app import make_app
from runnel.service.loop_errors import LoopProblems
from runnel.service.memory_usage import measure_memory_bytes
from runnel.service.server.declaration_check import LoadedFlows
from runnel.service.server.scheduler import Scheduler
from runnel.service.server.tls import CertificateReloader, check_exposure
from runnel.service.stale_claims import StaleClaimReaper

if TYPE_CHECKING:
    from runnel.client.lake import Lake

LOG = logging.getLogger("runnel.service")
_SCHEDULE_SECONDS, _REAP_SECONDS, _HEARTBEAT_SECONDS, _CLEANUP_SECONDS = 0.25, 1.0, 3.0, 3600.0
_ALARM_SECONDS = 1.0
_CERTIFICATE_SECONDS = 30.0
_RETENTION_SECONDS = 30 * 86_400.0  # of ended queue entries and past alarms


class ServerProcess:
    """The server process of a lake. `url` is where it listens."""

    def __init__(self, lake: "Lake") -> None:
        self._lake = lake
        self._name = f"{socket.gethostname()[:40]}-{secrets.token_hex(4)}"
        self.stop = threading.Event()
        self._problems = LoopProblems()
        settings = lake.settings
        check_exposure(settings)
        self._socket = open_listener(settings.host, settings.port)
        self.url = f"{settings.tls.scheme}://{format_host(settings.host)}:{self._socket.getsockname()[1]}"
        self._app = make_app(lake)
        self._config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
            ssl_certfile=settings.tls.certificate,
            ssl_keyfile=settings.tls.key,
        )
        self._server = _Server(self._config)

    def run(self) -> None:
        """Serve requests and run the background loops until `stop` is set."""
        store = self._lake.store
        flows, reaper = LoadedFlows(store.db), StaleClaimReaper(store.db)
        scheduler = Scheduler(store, are_declared=flows.are_declared)
        monitor = AlarmMonitor(
            store.db,
            schedule_problems=lambda: scheduler.problems,
            are_declared=flows.are_declared,
            list_backlogs=lambda: list_backlogs(store),
        )
        notifier = Notifier(store.db, self._lake.settings.name, self._lake.settings.root)
        loops = [
            self._start_loop("runnel schedules", _SCHEDULE_SECONDS, scheduler.queue_due_runs),
            self._start_loop("runnel claims", _REAP_SECONDS, reaper.release_stale_claims),
            self._start_loop("runnel presence", _HEARTBEAT_SECONDS, self._send_heartbeat),
            self._start_loop("runnel memory", _CLEANUP_SECONDS, self._delete_old_rows),
            self._start_loop("runnel alarms", _ALARM_SECONDS, monitor.update_alarms),
            self._start_loop("runnel alerts", _ALARM_SECONDS, notifier.start_due_notifications),
            *self._start_certificate_loop(),
        ]
        threading.Thread(target=self._await_stop, name="runnel stop", daemon=True).start()
        self._server.run(sockets=[self._socket])
        self.stop.set()
        for loop in loops:
            loop.join(10)
        notifier.finish()
        with suppress(RunnelError):  # the lease and the presence row expire by themselves then
            monitor.release_lease()
            workers.record_stop(store.db, self._name)

    def _delete_old_rows(self) -> None:
        """Delete queue entries and alarms that ended long ago."""
        db = self._lake.store.db
        run_queue.delete_old(db, _RETENTION_SECONDS)
        alarms.delete_old(db, _RETENTION_SECONDS, datetime.now(UTC))

    def _await_stop(self) -> None:
        self.stop.wait()
        self._app.state.ending.set()  # ends the open event streams
        self._server.should_exit = True

    def _start_loop(self, name: str, seconds: float, work: Callable[[], object]) -> threading.Thread:
        """Call `work` repeatedly in a thread; an error is logged once, shown by `status`, and the call is retried."""
        loop_name = name.removeprefix("runnel ")

        def loop() -> None:
            while not self.stop.is_set():
                try:
                    work()
                    self._problems.clear(loop_name)
                except Exception as error:  # an unreachable database, or a defect: neither may end the loop
                    what = error.what if isinstance(error, RunnelError) else f"{type(error).__name__}: {error}"
                    if self._problems.note(loop_name, what):
                        LOG.error("%s: %s", name, error, exc_info=error)
                self.stop.wait(seconds)

        thread = threading.Thread(target=loop, name=name, daemon=True)
        thread.start()
        return thread

    def _start_certificate_loop(self) -> list[threading.Thread]:
        """Watch the certificate's files, if the service has any: certificates are renewed every few weeks."""
        if self._lake.settings.tls.certificate is None:
            return []
        self._config.load()
        assert self._config.ssl is not None
        reloader = CertificateReloader(self._lake.settings.tls, self._config.ssl)
        return [self._start_loop("runnel certificate", _CERTIFICATE_SECONDS, reloader.reload_if_changed)]

    def _send_heartbeat(self) -> None:
        settings = self._lake.settings
        identity = {"url": self.url, "project": settings.name, "root": str(settings.root)}
        detail = {**identity, "memory_bytes": measure_memory_bytes(), "problems": self._problems.json()}
        workers.record_state(self._lake.store.db, self._name, workers.SERVICE, "ready", detail)


class _Server(uvicorn.Server):
    """A server that leaves signals to its process."""

    def install_signal_handlers(self) -> None:
        """Leave them alone."""


def open_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise a clear error if the address can't be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, proto=socket.IPPROTO_TCP)  # explicit, otherwise each response waits 40 ms
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        what = f"the service can't listen on {host}:{port}: {(error.strerror or str(error)).lower()}"
        fix = "`runnel down` stops this project's service; `runnel up --port 8471` uses another port"
        raise Mistake("SERVICE_PORT", what, fix=fix) from error
    listener.listen(512)
    return listener


def format_host(host: str) -> str:
    """Return a host as it is written in a URL.

    >>> format_host("::1"), format_host("127.0.0.1")
    ('[::1]', '127.0.0.1')
    """
    return f"[{host}]" if ":" in host else host
