"""Clicks sent to Kafka: many as fast as they go, or so many per second, by a process of its own.

`python -m bench.clicks SERVERS TOPIC PARTITIONS RATE SECONDS FIRST` sends the latter, numbered from FIRST, each with
the moment at which it was sent.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

SCHEMA = "id long, user long, page string, amount double, ts timestamp"
SENT = "id long, page string, sent double"
_TICK_SECONDS = 0.005
_CHUNK = 10_000


def fill(servers: str, topic: str, partitions: int, events: int) -> None:
    """Send events as fast as they go, and wait until all are there."""
    settings = {"linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 500_000}
    producer, failed = _producer(servers, settings)
    for first in range(0, events, _CHUNK):
        for number in range(first, min(first + _CHUNK, events)):
            producer.produce(topic, event(number), partition=number % partitions)
        while len(producer) > 400_000:
            producer.poll(0.05)
        producer.poll(0)
    _flush(producer, failed)


def event(number: int) -> str:
    """Return an event, always the same for a number."""
    day, second, minute, hour = number % 28 + 1, number % 60, number // 60 % 60, number // 3600 % 24
    at = f"2026-01-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{number % 1000:03d}Z"
    user, amount = number * 7919 % 100_003, number % 10_007 / 100
    return f'{{"id": {number}, "user": {user}, "page": "/page/{number % 977}", "amount": {amount}, "ts": "{at}"}}'


def send(servers: str, topic: str, partitions: int, rate: int, seconds: float, first: int) -> None:
    """Send events at a steady rate. One that is due is sent with the moment of its sending."""
    producer, failed = _producer(servers, {"linger.ms": 1})
    started, number = time.time(), first
    last = first + round(rate * seconds)
    while number < last:
        due = min(first + int((time.time() - started) * rate), last)
        for one in range(number, due):
            value = json.dumps({"id": one, "page": f"/page/{one % 977}", "sent": time.time()})
            producer.produce(topic, value, partition=one % partitions)
        number = max(due, number)
        producer.poll(0)
        time.sleep(_TICK_SECONDS)
    _flush(producer, failed)


@dataclass(frozen=True)
class Sender:
    """A process that sends at a steady rate, events `first` to `last`, the latter excluded."""

    process: subprocess.Popen[bytes]
    first: int
    last: int

    @classmethod
    def start(cls, servers: str, topic: str, partitions: int, rate: int, seconds: float, first: int = 0) -> "Sender":
        words = [servers, topic, *map(str, (partitions, rate, seconds, first))]
        process = subprocess.Popen([sys.executable, "-m", "bench.clicks", *words], cwd=Path(__file__).parents[1])
        return cls(process, first, first + round(rate * seconds))

    def wait(self, seconds: float = 60) -> None:
        if self.process.wait(seconds):
            raise RuntimeError("not all events could be sent")


def _producer(servers: str, settings: dict[str, int]) -> tuple[Producer, list[object]]:
    failed: list[object] = []
    note = lambda error, _: failed.append(error) if error else None  # noqa: E731
    return Producer({"bootstrap.servers": servers, "log_level": 0, "on_delivery": note, **settings}), failed


def _flush(producer: Producer, failed: list[object]) -> None:
    if producer.flush(60) or failed:
        raise RuntimeError(f"Kafka did not take all events: {failed[:1]}")


if __name__ == "__main__":
    servers, topic, *numbers = sys.argv[1:]
    partitions, rate, seconds, first = map(float, numbers)
    send(servers, topic, int(partitions), int(rate), seconds, int(first))
