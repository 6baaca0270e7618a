"""Topics of Kafka: a message for each row that came, an empty one for each key that went."""

import json
import uuid
from typing import Any

import pytest

from tests.connect.sinks.sink_project import Shop
from tests.servers.kafka import Server


@pytest.fixture
def topic(kafka: Server) -> str:
    """Make a topic."""
    return kafka.topic(f"orders-{uuid.uuid4().hex[:8]}")


def declare(shop: Shop, kafka: Server, topic: str, options: str = ', key="id"') -> None:
    shop.sinks(f'rn.sink("ods.orders", rn.kafka("{topic}", servers="{kafka.servers}"{options}))')


def messages(kafka: Server, topic: str) -> list[tuple[Any, Any, dict[str, str]]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "test", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (one := consumer.poll(10)) is not None and one.error() is None:
        key, value = (json.loads(part) if part is not None else None for part in (one.key(), one.value()))
        found.append((key, value, {name: text.decode() for name, text in one.headers() or ()}))
    consumer.close()
    return found


def test_rows_and_tombstones(shop: Shop, kafka: Server, topic: str) -> None:
    declare(shop, kafka, topic)
    first = shop.run()
    shop.day("a", (1, "2026-01-01", "7.00"))
    second = shop.run()
    assert shop.run().sinks == ()
    found = messages(kafka, topic)
    assert [(key, value and value["amount"]) for key, value, _ in found] == [
        ({"id": 1}, "5.00"),
        ({"id": 2}, "6.50"),
        ({"id": 1}, "7.00"),
        ({"id": 2}, None),
    ]
    commits = [first.commit, first.commit, second.commit, second.commit]
    assert [headers["runnel-commit"] for _, _, headers in found] == commits
    assert len({headers["runnel-key"] for _, _, headers in found}) == 4


def test_a_kill_sends_the_same_keys_again(shop: Shop, kafka: Server, topic: str) -> None:
    declare(shop, kafka, topic, "")
    shop.killed()
    shop.run()
    keys = [headers["runnel-key"] for _, _, headers in messages(kafka, topic)]
    assert len(keys) == 4 and keys[:2] == keys[2:]


def test_a_broker_that_is_away_fails_no_run(shop: Shop) -> None:
    shop.sinks('rn.sink("ods.orders", rn.kafka("orders", servers="127.0.0.1:1"), retries=0)')
    ran = shop.run()
    (sent,) = ran.sinks
    assert ran.state == "succeeded" and sent.error is not None and sent.error.code == "KAFKA_UNREACHABLE"
