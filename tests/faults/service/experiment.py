"""Break a service at random moments while schedules, requests, files, a stream and backfills keep it busy.

    python -m tests.faults.service.experiment --catalog sqlite --rounds 5 --seed 7

A process of its own, because the disk that is filled up is seen by this process and its children only.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.service import small_disk

if TYPE_CHECKING:
    from tests.faults.service.senders import Sender
    from tests.servers.postgres import Server

_CHECK_EVERY = 13  # rounds
_HASTE = 0.25  # how often the next fault comes before the last one is got over
_PATIENCE_SECONDS = 240.0
Tell = Callable[[str], None]


class Trial:
    """One project, what comes to it, and what keeps it up."""

    def __init__(
        self,
        folder: Path,
        kinds: "tuple[type[Sender], ...]",
        chance: random.Random,
        tell: Tell,
        *,
        server: "Server | None" = None,
        has_disk: bool = False,
        only: str = "",
    ) -> None:
        from tests.faults.service.fault_injection import Harm
        from tests.faults.service.senders import Requests
        from tests.faults.service.service_supervisor import System
        from tests.faults.service.shop_project import Shop

        self.log = folder / "up.txt"
        self._chance, self._tell = chance, tell
        catalog = server.url if server else f"sqlite:///{folder}/shop/.runnel/catalog.db"
        parts = {name: text for kind in kinds for name, text in kind.flow.items()}
        self.shop = Shop(folder / "shop", catalog, parts)
        self._disk = small_disk.Disk(self.shop.root / ".runnel") if has_disk else None
        self.senders = [kind(self.shop) for kind in kinds]
        self._requests = next(one for one in self.senders if isinstance(one, Requests))
        self.system = System(self.shop.root, self.log, self.shop.port)
        harm = Harm(self.shop, self.system, chance, server, self._disk)
        self._kinds = {kind: do for kind, do in harm.kinds.items() if only in kind}
        if not any(kind.needs_spark for kind in kinds):
            self._kinds.pop("Spark killed", None)

    def close(self) -> None:
        for sender in self.senders:
            sender.close()
        self.system.close()
        self.shop.close()
        if self._disk is not None:
            self._disk.close()

    def begin(self) -> None:
        """Wait until somebody answers, and let everything come."""
        from tests.faults.service.retrying_client import Client

        self.client = Client(self.shop.url, self.shop.token)
        self.client.await_up(120)
        for sender in self.senders:
            sender.start()
        self._go_on("after the start")

    def suffer(self, rounds: int) -> None:
        """Let one thing after the other break, and see each time that it goes on by itself."""
        for number, kind in enumerate(drawn(list(self._kinds), rounds, self._chance), 1):
            time.sleep(self._chance.uniform(0, 3))  # the moment is what is being tested
            if self._chance.random() < 0.5:
                self._requests.right_before()
            began = time.monotonic()
            self._kinds[kind]()
            harmed = time.monotonic()
            if self._chance.random() >= _HASTE:
                self._go_on(f"after round {number}, {kind}")
            took = f"{harmed - began:.1f} s, goes on after {time.monotonic() - harmed:.1f} s"
            self._tell(f"round {number} of {rounds}, {kind}: {took}")
            if number % _CHECK_EVERY == 0 and number < rounds:
                self._tell(self.check())

    def check(self) -> str:
        """Let nothing more come, wait until all of it is there, and see that everything is as it must be."""
        from tests.faults.service import verify
        from tests.faults.service.senders import Pushed
        from tests.service.running_service import until

        began = time.monotonic()
        with self._quiet():
            until(lambda: not self._missing(), _PATIENCE_SECONDS, self._missing)
            until(lambda: not self._open(), _PATIENCE_SECONDS, lambda: f"runs have not ended: {self._open()[:1]}")
            still = lambda: verify.still_running(self.shop)  # noqa: E731
            until(lambda: not still(), 60, lambda: f"runs are said to be running: {still()}")
            beats, given_up = verify.check_slots(self.shop), verify.check_runs(self.shop)
            self.shop.check()
        asked = len(self._requests.acknowledged)
        pushed = sum(one.acknowledged for one in self.senders if isinstance(one, Pushed))
        took = f"{time.monotonic() - began:.0f} s"
        seen = f"{beats} times, {asked} requests, {pushed} events"
        return f"sound, checked in {took}: {seen}, {given_up} runs given up in the end"

    def end(self) -> None:
        """Stop in order."""
        for sender in self.senders:
            sender.close()
        code = self.system.end()
        assert code == 0, f"it ended with {code}"

    @contextmanager
    def _quiet(self) -> "Iterator[None]":
        """Let nothing more come, by senders nor by the clock, while the block runs."""
        with ExitStack() as stack:
            for sender in self.senders:
                stack.enter_context(sender.guard)
            for name in ("beat", "minute"):
                self.client.post(f"/api/v1/schedules/{name}/pause")
                stack.callback(self.client.post, f"/api/v1/schedules/{name}/resume")
            yield

    def _missing(self) -> str:
        return next((told for sender in self.senders if (told := sender.missing())), "")

    def _open(self) -> list[str]:
        from runnel.lake.control import queue_entry

        return [str(one) for one in self.shop.entries(queue_entry.OPEN_STATES)]

    def _go_on(self, when: str) -> None:
        """See that files are taken in, that times publish, and that somebody answers."""
        self._see_senders()
        for table in ("ods.orders", "ods.beats"):
            self._advance(table, when)
        self.client.await_up(60)

    def _advance(self, table: str, when: str) -> None:
        from tests.service.running_service import until

        before = self.shop.count(table)
        until(lambda: self.shop.count(table) > before, _PATIENCE_SECONDS, lambda: f"no rows come to {table} {when}")

    def _see_senders(self) -> None:
        for sender in self.senders:
            assert sender.problem is None, sender.problem


def drawn(kinds: list[str], rounds: int, chance: random.Random) -> list[str]:
    """Return which fault each round has: all of them as often, in any order."""
    found: list[str] = []
    while len(found) < rounds:
        found += chance.sample(kinds, len(kinds))
    return found[:rounds]


def attempt(catalog: str, rounds: int, seed: int, has_disk: bool, tell: Tell, *, light: bool, only: str) -> str:
    """Try it on one database, and return what was seen."""
    from tests.faults.service import senders
    from tests.servers.postgres import Server

    os.environ.setdefault("RUNNEL_CDS", "ready")
    chance = random.Random(f"{seed} {catalog}")
    with ExitStack() as stack:
        server = stack.enter_context(Server()) if catalog == "postgresql" else None
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-service-", ignore_cleanup_errors=True))
        )
        kinds = senders.WITHOUT_SPARK if light else senders.ALL
        trial = Trial(folder, kinds, chance, tell, server=server, has_disk=has_disk, only=only)
        stack.callback(trial.close)
        try:
            trial.begin()
            trial.suffer(rounds)
            told = trial.check()
            trial.end()
        except BaseException:
            tell(trial.log.read_text(errors="replace")[-20_000:])
            keep(folder, tell)
            raise
        return told


def keep(folder: Path, tell: Tell) -> None:
    """Show the ends of the logs of a trial that failed."""
    for path in sorted((folder / "shop/.runnel/logs").glob("*.log")):
        tell(f"--- {path.name}\n{path.read_text(errors='replace')[-8000:]}")


def main() -> None:
    reader = argparse.ArgumentParser()
    reader.add_argument("--catalog", choices=("sqlite", "postgresql"), required=True)
    reader.add_argument("--rounds", type=int, required=True)
    reader.add_argument("--seed", type=int, required=True)
    reader.add_argument("--light", action="store_true", help="without Spark")
    reader.add_argument("--only", default="", help="faults whose name has this")
    reader.add_argument("--failpoints", action="store_true", help="say that the disk is full, instead of filling it")
    given = reader.parse_args()
    has_disk = not given.failpoints and small_disk.own()

    def tell(text: str) -> None:
        sys.stdout.write(f"{given.catalog}: {text}\n")
        sys.stdout.flush()

    tell(
        "a disk of its own is filled up" if has_disk else "no disk may be mounted here: failpoints say that it is full"
    )
    tell(attempt(given.catalog, given.rounds, given.seed, has_disk, tell, light=given.light, only=given.only))


if __name__ == "__main__":
    main()
