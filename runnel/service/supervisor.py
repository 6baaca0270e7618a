"""The supervisor: it starts the service and the workers, and starts again what has ended or no longer answers.

It does nothing else, so that nothing can bring it down. Should it be killed, its children see their end of a pipe
close, and end too.
"""

import logging
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.errors import RunnelError
from runnel.lake.control import run_queue, workers
from runnel.service.active_work import runs_under_way

if TYPE_CHECKING:
    from runnel.lake.catalog.database import Database

LOG = logging.getLogger("runnel.supervisor")
Tell = Callable[[str], None]
PATIENCE_SECONDS = 15.0  # for one that shows no sign of life
START_SECONDS = 120.0  # until it must have shown one
END_SECONDS = 30.0  # for a process that was told to end and has nothing to wait for
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.5, 30.0
_PAUSE_SECONDS = 0.2
_WELL_SECONDS = 60.0


@dataclass
class Child:
    """A process that is to be there. `command` is called with its name; `sign` returns what changes while it lives."""

    kind: str
    command: Callable[[str], Sequence[str]]
    sign: Callable[[str], str | None]
    name: str = ""
    process: "subprocess.Popen[bytes] | None" = None
    started: float = 0.0
    starts: int = 0
    next_at: float = 0.0
    pause: float = _SHORTEST_SECONDS
    seen: str | None = None
    seen_at: float = field(default=0.0)


class Supervisor:
    """The children of one `runnel up`."""

    def __init__(self, children: Sequence[Child], db: "Database", tell: Tell) -> None:
        self.stop = threading.Event()
        self.children = list(children)
        self.hurry = threading.Event()  # interrupt what is under way instead of waiting for it
        self._db = db
        self._tell = tell
        self._hurried_at: float | None = None
        self._shown: set[str] = set()

    def run(self) -> None:
        """Keep everything running until told to stop."""
        while not self.stop.is_set():
            for child in self.children:
                self._look(child)
            self.stop.wait(_PAUSE_SECONDS)

    def end(self) -> bool:
        """Stop all after what is under way, however long that takes; return whether all ended by themselves.

        Once `hurry` is set, workers interrupt their runs, and what has not ended soon after that is killed.
        """
        self.stop.set()
        there = [child for child in self.children if child.process is not None and child.process.poll() is None]
        for child in there:
            _signal(child, signal.SIGTERM)
        ended = [self._await_end(child, time.monotonic()) for child in there]
        return all(ended)

    def _await_end(self, child: Child, begun: float) -> bool:
        """Wait for the end of a child, and tell whether it ended in order; a worker may take long, if it lives."""
        assert child.process is not None
        while child.process.poll() is None:
            now = time.monotonic()
            if self._hurried_at is None and self.hurry.is_set():
                self._hurried_at = now
                for worker in [one for one in self.children if one.kind == "worker"]:
                    _signal(worker, signal.SIGUSR1)
            waits_since = self._hurried_at if child.kind == "worker" else begun
            if waits_since is not None and now - waits_since > END_SECONDS:
                self._tell(f"the {child.kind} did not end in time, it is killed")
                _signal(child, signal.SIGKILL)
            elif child.kind == "worker":
                self._watch(child, now)
                self._show_runs()
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(_PAUSE_SECONDS)
        is_whole = child.process.returncode == 0
        self._bury(child)
        return is_whole

    def _show_runs(self) -> None:
        """Say which runs it waits for, each once."""
        with suppress(RunnelError):  # the database is away
            names = frozenset(child.name for child in self.children)
            for run in runs_under_way(self._db, names):
                if run.run not in self._shown:
                    self._shown.add(run.run)
                    self._tell(f"waiting for {run.text}")

    def kill(self) -> None:
        """End everything at once."""
        for child in self.children:
            _signal(child, signal.SIGKILL)

    def _look(self, child: Child) -> None:
        now = time.monotonic()
        if child.process is None:
            if now >= child.next_at:
                self._start(child)
            return
        code = child.process.poll()
        if code is None:
            self._watch(child, now)
            return
        self._bury(child)
        if now - child.started > _WELL_SECONDS:
            child.pause = _SHORTEST_SECONDS
        LOG.error("the %s ended with %s; it is started again in %s s", child.kind, code, child.pause)
        self._tell(f"the {child.kind} has ended ({_how(code)}); it is started again")
        child.next_at, child.pause = now + child.pause, min(2 * child.pause, _LONGEST_SECONDS)

    def _start(self, child: Child) -> None:
        child.starts += 1
        child.name = f"{socket.gethostname()[:30]}-{os.getpid()}-{child.kind}-{child.starts}-{os.urandom(2).hex()}"
        child.process = subprocess.Popen(child.command(child.name), stdin=subprocess.PIPE)
        child.started = child.seen_at = time.monotonic()
        child.seen = None
        LOG.info("the %s is started as %s, process %s", child.kind, child.name, child.process.pid)

    def _watch(self, child: Child, now: float) -> None:
        """Kill a child that shows no sign of life: it hangs, or was stopped."""
        if now - child.seen_at < 2.0:
            return
        try:
            sign = child.sign(child.name)
        except RunnelError:
            child.seen_at = now  # the database is away: nobody can show anything
            return
        if sign is not None and sign != child.seen:
            child.seen, child.seen_at = sign, now
        elif now - child.seen_at > (START_SECONDS if child.seen is None else PATIENCE_SECONDS):
            LOG.error("the %s shows no sign of life", child.kind)
            self._tell(f"the {child.kind} shows no sign of life; it is killed")
            _signal(child, signal.SIGKILL)

    def _bury(self, child: Child) -> None:
        """Give back what a child held that has ended."""
        if child.process is not None and child.process.stdin is not None:
            with suppress(OSError):
                child.process.stdin.close()
        child.process = None
        if child.kind == "worker":
            with suppress(RunnelError):  # its claims end by themselves then
                run_queue.release(self._db, worker=child.name)
                workers.leave(self._db, child.name)


def beats(db: "Database") -> Callable[[str], str | None]:
    """Return what tells when a worker last said that it is there."""

    def sign(name: str) -> str | None:
        there = db.read(lambda connection: workers.present(connection, workers.WORKER))
        return next((one.renewed_at for one in there if one.id == name), None)

    return sign


def answers(url: str) -> Callable[[str], str | None]:
    """Return what tells that a service answers."""

    def sign(name: str) -> str | None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                return str(time.monotonic()) if answer.status == 200 else None
        except OSError:
            return None

    return sign


def _signal(child: Child, how: signal.Signals) -> None:
    if child.process is not None:
        with suppress(ProcessLookupError):
            child.process.send_signal(how)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
