"""A topic with much in it: read in one run without holding it in memory, past all that is no message."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.connect.kafka.kafka_project import Clicks
from tests.faults.process_helpers import start
from tests.servers.kafka import Server

MESSAGES, BYTES = 30_000, 10_000


@pytest.fixture
def clicks(kafka: Server, tmp_path: Path) -> Clicks:
    return Clicks(kafka, tmp_path)


@pytest.fixture
def producer(kafka: Server) -> Iterator[Producer]:
    """Yield one that packs messages, in transactions where they are begun."""
    settings = {"bootstrap.servers": kafka.servers, "compression.type": "zstd", "linger.ms": 20, "log_level": 0}
    found = Producer(settings | {"transactional.id": f"backlog-{random.random()}"})
    found.init_transactions(20)
    yield found
    found.purge()


def read(port: int, topic: str, told: str) -> None:
    """Fetch a topic, and write by how many bytes this process grew for that, and how many messages came."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server.__new__(Server)  # another process has it; here only its address counts
        server.port = port
        clicks = Clicks(server, Path(folder))
        clicks.topic = topic
        feed = clicks.feed()
        announced = feed.news()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before, scratch, most = peak(), Path(folder) / "scratch", 0
        scratch.mkdir()

        def tell(what: str, done: int, total: int | None) -> None:
            nonlocal most
            most = max(most, done)

        feed.feed.fetch(None, announced, scratch, tell)
        Path(told).write_text(f"{peak() - before} {most}")


def peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no way to measure the memory of a process")
def test_a_large_backlog_is_not_held_in_memory(clicks: Clicks, tmp_path: Path) -> None:
    clicks.make(3)
    producer = Producer({"bootstrap.servers": clicks.server.servers, "compression.type": "zstd", "log_level": 0})
    chance = random.Random(7)
    text = chance.randbytes(2_000_000).hex()  # so that it can be packed, but not to nothing
    for number in range(MESSAGES):
        cut = chance.randrange(len(text) - BYTES)
        producer.produce(clicks.topic, f'{{"page": "{text[cut : cut + BYTES]}"}}', partition=number % 3)
        producer.poll(0)
    assert producer.flush(60) == 0
    told = tmp_path / "told"
    process = start(read, clicks.server.port, clicks.topic, str(told))
    process.join()
    assert process.exitcode == 0
    grown, count = map(int, told.read_text().split())
    assert count == MESSAGES and grown < MESSAGES * BYTES * 2 // 3, f"it took {grown:,} bytes"


def test_only_what_was_committed_is_read_and_the_rest_is_passed(clicks: Clicks, producer: Producer) -> None:
    clicks.make(2)
    clicks.declare()

    def write(ids: range, *, is_kept: bool) -> None:
        producer.begin_transaction()
        for number in ids:
            producer.produce(clicks.topic, f'{{"id": {number}}}', partition=number % 2)
        producer.flush(20)
        (producer.commit_transaction if is_kept else producer.abort_transaction)(20)

    write(range(2_000), is_kept=False)
    write(range(2_000, 6_000), is_kept=True)
    write(range(6_000, 30_000), is_kept=False)  # more than lines may be left empty
    write(range(30_000, 30_002), is_kept=True)
    write(range(40_000, 41_000), is_kept=False)
    assert clicks.run() == {"ods.clicks": "ingest"}
    kept = [*range(2_000, 6_000), 30_000, 30_001]
    assert sorted(row[0] for row in clicks.rows()) == kept and clicks.run() == {}
    write(range(41_000, 42_000), is_kept=False)
    clicks.run()  # there is nothing but what was aborted, which is passed once
    assert len(clicks.rows()) == len(kept) and clicks.run() == {}
    write(range(42_000, 42_001), is_kept=True)
    clicks.run()
    assert sorted(row[0] for row in clicks.rows()) == [*kept, 42_000]
