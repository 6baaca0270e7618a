"""`runnel up` is killed while 1,000 events come in a second: each counts once, and nobody has to help.

`make test-faults ONLY=stream` does the same with many more faults, and kills streams at each of their failpoints.
"""

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from runnel.connect.feed import failpoints as feed
from runnel.lake import failpoints as lake
from runnel.run.sources import failpoints as sources
from tests.faults.process_helpers import killed, start
from tests.servers.kafka import Server
from tests.service.running_service import Sender, Shop, Up, keep, until

SEED = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
WITHOUT_SPARK = 3  # kills; and two with it
POINTS = (
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
    lake.COMPACT_FILES,
    lake.COMPACT_STAGED,
)


@pytest.fixture
def shop(tmp_path: Path, kafka: Server) -> Iterator[Shop]:
    """Return a project with a source, whose lake is closed in the end."""
    with closing(Shop(tmp_path / "shop", kafka)) as shop:
        yield shop


@contextmanager
def kept(shop: Shop, fail: str | None = None) -> Iterator[BaseProcess]:
    """Keep a project without streams going, in a process that starts at once."""
    process = start(keep, str(shop.root), fail=fail)
    try:
        yield process
    finally:
        process.kill()
        process.join()


@pytest.mark.crash
def test_five_random_kills(shop: Shop, tmp_path: Path) -> None:
    print(f"seed {SEED}: repeat with SEED={SEED}")  # noqa: T201  shown when it fails
    chance, log = random.Random(SEED), tmp_path / "log"
    with Sender(shop) as sender:
        for _ in range(WITHOUT_SPARK):
            with kept(shop):
                shop.advance("ods.events", "after a start")
                time.sleep(chance.uniform(0, 1))  # the moment of the kill is what is being tested
        shop.check()
        shop.add_tasks()
        with Up(shop.root, log) as up:
            time.sleep(chance.uniform(3, 8))  # while Spark and the streams start
            up.kill()
        with Up(shop.root, log) as up:
            shop.advance(chance.choice(["dwd.kept", "dws.counted"]), "by a stream")
            time.sleep(chance.uniform(0, 2))
            up.kill()
        with Up(shop.root, log) as up:
            until(lambda: up.spark_is_hindered(), 60, lambda: "Spark could start")
            shop.advance("dwd.kept", "after the last kill")
            shop.settle(sender.end(), log)
            assert up.stop() == 0


@pytest.mark.crash
def test_killed_at_every_point_of_taking_in(shop: Shop, tmp_path: Path) -> None:
    with Sender(shop) as sender:
        for number, point in enumerate(POINTS):
            with kept(shop, f"{point}:kill@{1 + number % 2}") as process:
                process.join(60)
                assert killed(process), f"{point} is not on the way"
        with kept(shop):
            shop.settle(sender.end(), tmp_path / "log")


@pytest.mark.crash
def test_what_it_needs_goes_away_for_a_while(shop: Shop, tmp_path: Path) -> None:
    with Sender(shop) as sender, kept(shop) as process:
        shop.advance("ods.events", "after a start")
        with closing(sqlite3.connect(shop.root / ".runnel/catalog.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(2)  # for how long it is locked
            other.execute("COMMIT")
        shop.advance("ods.events", "after the database was locked")
        shop.server.kill()
        shop.server.start()
        shop.advance("ods.events", "after the broker was killed")
        shop.settle(sender.end(), tmp_path / "log")
        assert process.is_alive()
