"""Kinds of sinks that are told each change: what they hold is what all that was told comes to."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runnel.connect.sinks.failpoints import ACCEPTED, SENDING
from tests.connect.sinks.sink_kinds import Kind, Row, Rows, row_of, sink
from tests.servers.http_server import Server as Hooks
from tests.servers.kafka import Server as Kafka


class Topics(Kind):
    """A topic whose messages have keys, and one whose have none."""

    grows = frozenset({"plain"})
    kills: Mapping[str, Sequence[int]] = {SENDING: (1, 2), ACCEPTED: (1, 2)}
    code = "KAFKA_WRITE"

    def __init__(self, kafka: Kafka, suffix: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._kafka = kafka
        self._topics = {name: kafka.topic(f"{name}-{suffix}") for name in ("keyed", "plain")}
        self._consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": suffix, "fetch.wait.max.ms": 5})
        self._partitions = [TopicPartition(topic, 0, 0) for topic in self._topics.values()]
        self._consumer.assign(self._partitions)
        self._found: list[tuple[str, Any]] = []

    def close(self) -> None:
        self._consumer.close()

    def lines(self) -> Sequence[str]:
        keys = {"keyed": ', key="id"', "plain": ""}
        servers = f'servers="{self._kafka.servers}"'
        return [sink(f'kafka("{topic}", {servers}{keys[name]})', name) for name, topic in self._topics.items()]

    def rows(self) -> dict[str, Rows]:
        there: dict[int, Row] = {}
        plain: Rows = Counter()
        for name, (key, value) in dict(self.sent()).items():
            if name.startswith("plain/"):
                plain[_row(value)] += 1
            elif value is None:
                del there[key["id"]]
            else:
                there[key["id"]] = _row(value)
        return {"keyed": Counter(there.values()), "plain": plain}

    def sent(self) -> list[tuple[str, Any]]:
        ends = (self._consumer.get_watermark_offsets(one, timeout=10, cached=False)[1] for one in self._partitions)
        for _ in range(sum(ends) - len(self._found)):
            message = self._consumer.poll(10)
            assert message is not None and message.error() is None
            key, value = (json.loads(part) if part is not None else None for part in (message.key(), message.value()))
            headers = {name: text.decode() for name, text in message.headers()}
            self._found.append((headers["runnel-key"], (key, value)))
        return list(self._found)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        self._limit("1")
        yield
        self._limit("1000000")

    def _limit(self, size: str) -> None:
        """Let the topics take messages of this size, and wait until the broker goes by it."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        admin, topics = self._kafka.admin, self._topics.values()
        entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
        asked = [ConfigResource(ResourceType.TOPIC, one, incremental_configs=[entry]) for one in topics]
        for done in admin.incremental_alter_configs(asked).values():
            done.result(20)
        settled = False
        while not settled:
            told = admin.describe_configs([ConfigResource(ResourceType.TOPIC, one) for one in topics]).values()
            settled = all(one.result(20)["max.message.bytes"].value == size for one in told)


class Webhooks(Kind):
    """An address that gets each change at once, and before it one that gets it row by row."""

    kills: Mapping[str, Sequence[int]] = {SENDING: (1, 2), ACCEPTED: (1, 2)}
    code = "SINK_REFUSED"

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def lines(self) -> Sequence[str]:
        batches = {"single": ", batch=1", "whole": ""}
        return [sink(f'webhook("{self._hooks.url(f"/hook/{name}")}"{batch})', name) for name, batch in batches.items()]

    def rows(self) -> dict[str, Rows]:
        found: dict[str, Rows] = {"single": Counter(), "whole": Counter()}
        for body in map(json.loads, dict(self.sent()).values()):
            found[body["sink"]].update(_row(row) for row in body["added"])
            found[body["sink"]].subtract(_row(row) for row in body["removed"])
        return {name: +rows for name, rows in found.items()}

    def sent(self) -> list[tuple[str, Any]]:
        return [(post.headers["Idempotency-Key"], post.body) for post in self._hooks.posts]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        self._hooks.fail("status", 400, times=1000)
        yield
        self._hooks.heal()


class Function(Kind):
    """A function that writes down what it is called with."""

    code = "SINK_FUNCTION"
    text = """
import json
from pathlib import Path

@rn.sink("ods.orders", name="function", retries=0)
def send(rows, *, change):
    root = Path(__file__).parent.parent
    if (root / "broken").exists():
        raise ValueError("the queue is full")
    told = {"key": change.key, "came": rows.to_pylist(), "gone": change.removed.to_pylist()}
    with (root / "log.jsonl").open("a") as log:
        log.write(json.dumps(told, default=str) + "\\n")
"""

    def __init__(self, root: Path) -> None:
        self._root = root

    def lines(self) -> Sequence[str]:
        return [self.text]

    def rows(self) -> dict[str, Rows]:
        found: Rows = Counter()
        for came, gone in dict(self.sent()).values():
            found.update(came)
            found.subtract(gone)
        return {"function": +found}

    def sent(self) -> list[tuple[str, Any]]:
        calls = [json.loads(line) for line in (self._root / "log.jsonl").read_text().splitlines()]
        sides = ([sorted(_row(row) for row in call[side]) for side in ("came", "gone")] for call in calls)
        return [(call["key"], side) for call, side in zip(calls, sides, strict=True)]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        (self._root / "broken").touch()
        yield
        (self._root / "broken").unlink()


def _row(told: dict[str, Any]) -> Row:
    return row_of(told["id"], told["day"], told["amount"])
