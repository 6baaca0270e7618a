"""Supervise the server and worker processes: start them, and restart those that ended or no longer respond.

The supervisor does nothing else, so that nothing can bring it down. If it is killed, its children see their end of a
pipe close, and end too.
"""

import logging
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.control import run_claims, workers
from runnel.service.active_work import list_runs_under_way

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database

LOG = logging.getLogger("runnel.supervisor")
ReportLine = Callable[[str], None]
SILENCE_SECONDS = 15.0  # a process without a heartbeat for so long is killed
START_SECONDS = 120.0  # for the first heartbeat
END_SECONDS = 30.0  # for a process that was told to end and has nothing to wait for
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 30.0
_PAUSE_SECONDS = 0.2
_STABLE_SECONDS = 60.0


@dataclass
class ChildProcess:
    """A supervised process. `command` returns its command line for a name.

    `read_heartbeat` returns a value that changes as long as the process is alive.
    """

    kind: str
    command: Callable[[str], Sequence[str]]
    read_heartbeat: Callable[[str], str | None]
    name: str = ""
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    start_count: int = 0
    next_start_at: float = 0.0
    pause_seconds: float = _MIN_PAUSE_SECONDS
    last_heartbeat: str | None = None
    last_heartbeat_at: float = field(default=0.0)


class Supervisor:
    """The children of one `runnel up`."""

    def __init__(self, children: Sequence[ChildProcess], db: "Database", report: ReportLine) -> None:
        self.stop = threading.Event()
        self.children = list(children)
        self.interrupt_requested = threading.Event()  # set to interrupt running runs instead of waiting for them
        self._db = db
        self._report = report
        self._interrupted_at: float | None = None
        self._reported_runs: set[str] = set()

    def run(self) -> None:
        """Keep all children running until `stop` is set."""
        while not self.stop.is_set():
            for child in self.children:
                self._check_child(child)
            self.stop.wait(_PAUSE_SECONDS)

    def end(self) -> bool:
        """Stop all children after their running runs, however long that takes; return whether all ended cleanly.

        Once `interrupt_requested` is set, workers interrupt their runs; children that don't end soon after are killed.
        """
        self.stop.set()
        running_children = [
            child for child in self.children if child.process is not None and child.process.poll() is None
        ]
        for child in running_children:
            _send_signal(child, signal.SIGTERM)
        ended_cleanly = [self._await_end(child, time.monotonic()) for child in running_children]
        return all(ended_cleanly)

    def _await_end(self, child: ChildProcess, stop_requested_at: float) -> bool:
        """Wait for the end of a child, and return whether it ended cleanly; a worker with heartbeats may take long."""
        assert child.process is not None
        while child.process.poll() is None:
            now = time.monotonic()
            if self._interrupted_at is None and self.interrupt_requested.is_set():
                self._interrupted_at = now
                for worker in [sibling for sibling in self.children if sibling.kind == "worker"]:
                    _send_signal(worker, signal.SIGUSR1)
            waits_since = self._interrupted_at if child.kind == "worker" else stop_requested_at
            if waits_since is not None and now - waits_since > END_SECONDS:
                self._report(f"the {child.kind} did not end in time and is killed")
                _send_signal(child, signal.SIGKILL)
            elif child.kind == "worker":
                self._kill_if_silent(child, now)
                self._report_runs()
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(_PAUSE_SECONDS)
        ended_cleanly = child.process.returncode == 0
        self._release_child(child)
        return ended_cleanly

    def _report_runs(self) -> None:
        """Report which runs the shutdown waits for, each once."""
        with suppress(RunnelError):  # the database is unreachable
            names = frozenset(child.name for child in self.children)
            for run in list_runs_under_way(self._db, names):
                if run.run not in self._reported_runs:
                    self._reported_runs.add(run.run)
                    self._report(f"waiting for {run.text}")

    def kill(self) -> None:
        """Kill all children immediately."""
        for child in self.children:
            _send_signal(child, signal.SIGKILL)

    def _check_child(self, child: ChildProcess) -> None:
        now = time.monotonic()
        if child.process is None:
            if now >= child.next_start_at:
                self._start_child(child)
            return
        code = child.process.poll()
        if code is None:
            self._kill_if_silent(child, now)
            return
        self._release_child(child)
        if now - child.started_at > _STABLE_SECONDS:
            child.pause_seconds = _MIN_PAUSE_SECONDS
        what = f"the {child.kind} has ended ({_describe_exit(code)}); the supervisor restarts it"
        LOG.error("%s in %s s", what, child.pause_seconds)
        self._report(what)
        child.next_start_at, child.pause_seconds = (
            now + child.pause_seconds,
            min(2 * child.pause_seconds, _MAX_PAUSE_SECONDS),
        )

    def _start_child(self, child: ChildProcess) -> None:
        child.start_count += 1
        child.name = f"{socket.gethostname()[:30]}-{os.getpid()}-{child.kind}-{child.start_count}-{os.urandom(2).hex()}"
        child.process = subprocess.Popen(child.command(child.name), stdin=subprocess.PIPE)
        child.started_at = child.last_heartbeat_at = time.monotonic()
        child.last_heartbeat = None
        LOG.info("the %s is started as %s, process %s", child.kind, child.name, child.process.pid)

    def _kill_if_silent(self, child: ChildProcess, now: float) -> None:
        """Kill a child without a heartbeat: it hangs, or was suspended."""
        if now - child.last_heartbeat_at < 2.0:
            return
        try:
            heartbeat = child.read_heartbeat(child.name)
        except RunnelError:
            child.last_heartbeat_at = now  # the database is unreachable, so heartbeats can't be read
            return
        if heartbeat is not None and heartbeat != child.last_heartbeat:
            child.last_heartbeat, child.last_heartbeat_at = heartbeat, now
        elif now - child.last_heartbeat_at > (START_SECONDS if child.last_heartbeat is None else SILENCE_SECONDS):
            LOG.error("the %s does not respond", child.kind)
            self._report(f"the {child.kind} does not respond and is killed")
            _send_signal(child, signal.SIGKILL)

    def _release_child(self, child: ChildProcess) -> None:
        """Release the pipe and the claims of a child that has ended."""
        if child.process is not None and child.process.stdin is not None:
            with suppress(OSError):
                child.process.stdin.close()
        child.process = None
        if child.kind == "worker":
            with suppress(RunnelError):  # its claims expire by themselves then
                run_claims.release_claims(self._db, worker=child.name)
                workers.remove(self._db, child.name)


def make_heartbeat_reader(db: "Database") -> Callable[[str], str | None]:
    """Return a function that reads when a worker last renewed its presence."""

    def read_heartbeat(name: str) -> str | None:
        present_workers = db.read(lambda connection: workers.list_alive(connection, workers.WORKER))
        return next((worker.renewed_at for worker in present_workers if worker.id == name), None)

    return read_heartbeat


def make_health_probe(url: str) -> Callable[[str], str | None]:
    """Return a function that checks whether the server responds."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing secret is sent, and the certificate may be for another name

    def probe_health(_name: str) -> str | None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5, context=context) as response:
                return str(time.monotonic()) if response.status == 200 else None
        except OSError:
            return None

    return probe_health


def _send_signal(child: ChildProcess, signal_number: signal.Signals) -> None:
    if child.process is not None:
        with suppress(ProcessLookupError):
            child.process.send_signal(signal_number)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
