"""Faults of all kinds while 1,000 events in a second flow through a source, two streams and a scheduled task.

After each the streams must go on by themselves; in the end every event counts once.
"""

import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from runnel.connect.feed import failpoints as feed
from runnel.lake import failpoints as lake
from runnel.run.sources import failpoints as sources
from runnel.run.stream import failpoints as stream
from tests.servers.kafka import Server as Kafka
from tests.servers.postgres import Server as Postgres
from tests.service.running_service import Sender, Shop, Up

FAULTS = 50
_CHECK_EVERY = 10  # faults
_HASTE = 0.25
_RARE = (*stream.ALL, lake.SLOT_PLACED, lake.COMPACT_FILES, lake.COMPACT_STAGED)
_OFTEN = (
    *feed.ALL,
    sources.SOURCE_STAGED,
    lake.WRITE_BYTES,
    lake.WRITE_DATA,
    lake.WRITE_MANIFEST,
    lake.WRITE_MANIFEST_LIST,
    lake.WRITE_METADATA,
    lake.PUBLISH_BEFORE,
    lake.PUBLISH_ROWS,
    lake.PUBLISH_BEFORE_COMMIT,
    lake.PUBLISH_AFTER_COMMIT,
)
POINTS = {**dict.fromkeys(_OFTEN, 60), **dict.fromkeys(_RARE, 3), lake.RESULT_BEFORE_COMMIT: 1, lake.RESULT_RECORDED: 1}
"""The points that everything together passes, and at which passing at most it is killed there."""
_KINDS = ("kill", "kill", "kill", "spark", "broker", "database")
Tell = Callable[[str], None]


class Trial:
    """One project, and a process that keeps it going, whatever happens to it."""

    def __init__(
        self, folder: Path, kafka: Kafka, chance: random.Random, tell: Tell, postgres: Postgres | None = None
    ) -> None:
        self.chance = chance
        self.log = folder / "log"
        self._kafka, self._postgres, self._tell = kafka, postgres, tell
        settings = f'\n[lake]\ncatalog = "{postgres.url}"\n' if postgres else ""
        self.shop = Shop(folder / "shop", kafka, settings)
        self.shop.add_tasks()
        self.sender = Sender(self.shop)
        self.up = Up(self.shop.root, self.log)

    def __enter__(self) -> "Trial":
        self.sender.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.sender.__exit__()
        self.up.__exit__()
        self.shop.close()

    def suffer(self, faults: int) -> None:
        """Let things break at random moments, and see each time that rows come again."""
        self.shop.advance("ads.totals", "after the start", 240)
        for number in range(1, faults + 1):
            kind = self.chance.choice(_KINDS)
            time.sleep(self.chance.uniform(0, 3))  # the moment is what is being tested
            self.harm(kind)
            harmed = time.monotonic()
            self.go_on(f"after fault {number}, {kind}")
            self._tell(f"fault {number} of {faults}, {kind}: goes on after {time.monotonic() - harmed:.0f} s")
            if number % _CHECK_EVERY == 0:
                self.shop.check()

    def fall(self, points: dict[str, int]) -> None:
        """Kill the worker at each named step, each time on its way to go on after the last; the service stays."""
        self.up.kill()
        with Up(self.shop.root, self.log, command="service"):
            for point, most in points.items():
                fail = f"{point}:kill@{self.chance.randint(1, most)}"
                self.up = Up(self.shop.root, self.log, fail, command="worker")
                try:
                    self.up.died(240)
                except AssertionError as error:
                    raise AssertionError(f"{fail}: {error}") from None
                self._tell(f"killed at {fail}")
        self.up = Up(self.shop.root, self.log)

    def settle(self) -> None:
        """Send no more, wait until everything is there, and stop in order."""
        self.shop.settle(self.sender.end(), self.log, 600)
        code = self.up.stop()
        assert code == 0, f"it ended with {code}"

    def go_on(self, when: str) -> None:
        """See that rows come again, and that nobody but us has ended the process.

        Mostly to a stream's table; at times the next fault comes while streams are still starting.
        """
        table = "ods.events" if self.chance.random() < _HASTE else "dwd.kept"
        self.shop.advance(table, when, 240)
        assert self.up.is_alive, f"it has ended {when}"

    def harm(self, kind: str) -> None:
        """Do what a kind of fault does."""
        kinds = {
            "kill": self.kill,
            "spark": lambda: self.up.kill_spark(),
            "broker": self.kill_broker,
            "database": self.take_database,
        }
        kinds[kind]()

    def kill(self) -> None:
        self.up.kill()
        self.up = Up(self.shop.root, self.log)

    def kill_broker(self) -> None:
        self._kafka.kill()
        time.sleep(self.chance.uniform(0, 4))  # for how long it is away
        self._kafka.start()

    def take_database(self) -> None:
        """Lock the database, or restart it, where it is a server."""
        seconds = self.chance.uniform(0.5, 6)
        if self._postgres is not None:
            self._postgres.stop()
            time.sleep(seconds)
            self._postgres.start()
            return
        with closing(sqlite3.connect(self.shop.root / ".runnel/catalog.db", 30, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            other.execute("COMMIT")


def break_everything(seed: int, faults: int, tell: Tell) -> str:
    """Try it on both databases, with half of the faults each; on SQLite also each failpoint."""
    os.environ.setdefault("RUNNEL_CDS", "ready")
    chance, half = random.Random(seed), faults // 2
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        postgres = stack.enter_context(Postgres())
        for name, server, share, points in (
            ("sqlite", None, half, POINTS),
            ("postgresql", postgres, faults - half, {}),
        ):
            with Trial(folder / name, kafka, chance, lambda text, on=name: tell(f"{on}: {text}"), server) as trial:
                try:
                    trial.suffer(share)
                    trial.fall(points)
                    trial.settle()
                except AssertionError:
                    tell(trial.log.read_text(errors="replace")[-20_000:])
                    raise
                tell(f"{name}: all {trial.sender.sent} events are there, each once")
    return f"{faults} random faults and a kill at each of {len(POINTS)} failpoints, each event there once"
