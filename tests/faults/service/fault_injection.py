"""The faults: each is done to a system that is up, and undone where it is not of the kind that a system gets over."""

import http.client
import os
import random
import signal
import sqlite3
import time
import urllib.error
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

from tests.faults.service.retrying_client import Client
from tests.servers.kafka import _free_ports
from tests.service.running_service import Up

if TYPE_CHECKING:
    from tests.faults.service.service_supervisor import System
    from tests.faults.service.shop_project import Shop
    from tests.faults.service.small_disk import Disk
    from tests.servers.postgres import Server

_ZOMBIE_SECONDS = (10.5, 14.0)  # longer than a claim lasts, shorter than the supervisor waits for a sign of life
_NO_ROOM = ("write.data", "write.manifest", "write.metadata", "write.bytes", "publish.before_commit")


class Harm:
    """What can be done to one system. `disk` is None where there is none of its own."""

    def __init__(
        self, shop: "Shop", system: "System", chance: random.Random, server: "Server | None", disk: "Disk | None"
    ) -> None:
        self._shop, self._system, self._chance = shop, system, chance
        self._server, self._disk = server, disk
        self.kinds: dict[str, Callable[[], None]] = {
            "supervisor killed": lambda: self._kill("supervisor"),
            "service killed": lambda: self._kill("service --watched"),
            "worker killed": lambda: self._kill("worker --watched"),
            "Spark killed": lambda: self._kill("java"),
            "everything killed": self._system.kill_all,
            "worker stopped for a while": self._zombie,
            "service stopped for a while": self._deaf,
            "a second service and worker": self._second,
            "database away": self._database,
            "disk full": self._full if disk is not None else self._no_room,
        }

    def _kill(self, kind: str) -> None:
        """Kill one; at times twice in a row, so that the second time it is just starting."""
        self._system.signal(kind)
        if self._chance.random() < 0.3:
            time.sleep(self._chance.uniform(0.5, 3))  # the moment is what is being tested
            self._system.signal(kind)

    def _zombie(self) -> None:
        """Stop the worker until its runs were given to somebody else, and let it go on."""
        self._pause("worker --watched", self._chance.uniform(*_ZOMBIE_SECONDS))

    def _deaf(self) -> None:
        self._pause("service --watched", self._chance.uniform(2, 12))

    def _pause(self, kind: str, seconds: float) -> None:
        pid = self._system.signal(kind, signal.SIGSTOP)
        time.sleep(seconds)  # for how long is what is being tested
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _second(self) -> None:
        """Let a second service and a second worker work for the same database, and kill one of the first meanwhile."""
        with ExitStack() as stack:
            for command in ("service", "worker"):
                stack.enter_context(Up(self._shop.root, self._system.log, command=command, port=_free_ports(1)[0]))
            time.sleep(self._chance.uniform(1, 6))
            self._system.signal(self._chance.choice(["service --watched", "worker --watched"]))
            time.sleep(self._chance.uniform(1, 8))

    def _database(self) -> None:
        """Lock the database for a while, or restart it, where it is a server."""
        seconds = self._chance.uniform(0.5, 12)
        if self._server is not None:
            self._server.stop()
            time.sleep(seconds / 2)
            self._server.start()
            return
        with closing(sqlite3.connect(self._shop.root / ".runnel/catalog.db", 30, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            other.execute("COMMIT")

    def _full(self) -> None:
        """Fill the disk; reads are answered meanwhile. At times something dies and has to start without any room."""
        assert self._disk is not None
        seconds, dies = self._chance.uniform(2, 10), self._chance.random() < 0.4
        if not dies:
            Client(self._shop.url, self._shop.token).await_up(60)  # what was broken before may still be starting
        until = time.monotonic() + seconds
        self._disk.fill()
        try:
            if dies:
                self._system.signal(self._chance.choice(["worker --watched", "service --watched", "supervisor"]))
            while time.monotonic() < until:
                self._disk.fill()
                time.sleep(0.2)
            if not dies:
                self._answers()
        finally:
            self._disk.free()

    def _answers(self) -> None:
        """See that the service reads, and says why it can't write; small writes may still find room in a log."""
        client = Client(self._shop.url, self._shop.token)
        try:
            assert client.get("/api/v1/tables", 30)["items"], "there are no tables"
            client.post_once("/api/v1/schedules/minute/resume")
        except urllib.error.HTTPError as error:
            told = error.read().decode()
            assert error.code == 503 and "DISK_FULL" in told, f"a full disk is told as {error.code}: {told}"
        except (OSError, http.client.HTTPException) as error:
            raise AssertionError(f"nothing is read while the disk is full: {error}") from error

    def _no_room(self) -> None:
        """Start everything anew with writes that fail, where no disk can be filled."""
        points = self._chance.sample(_NO_ROOM, 3)
        self._system.fail = ",".join(f"{point}:enospc@{self._chance.randint(1, 12)}" for point in points)
        self._system.kill_all()
