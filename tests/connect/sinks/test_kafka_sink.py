"""Topics of Kafka: a message for each row that came, an empty one for each key that went."""

import json
import uuid
from contextlib import nullcontext
from typing import Any

import pytest

from runnel.model.work_place import EXECUTORS, PROCESS, WorkPlace
from tests.connect.sinks.sink_project import Shop
from tests.connect.sinks.unit_deliveries import AttemptRunner, delivering_in_units
from tests.lake.pickling_runner import PicklingRunner
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


def test_units_send_the_messages_of_one_process_with_the_same_keys(shop: Shop, kafka: Server) -> None:
    shop.day("b", *((number, "2026-01-03", "1.00") for number in range(10, 40)))
    shop.day("c", (50, "2026-01-03", "1.00"), (50, "2026-01-03", "1.00"), (50, "2026-01-03", "2.00"))
    names = {place: kafka.topic(f"{place}-{uuid.uuid4().hex[:8]}") for place in ("process", "units")}
    options = {place: f'"{name}", servers="{kafka.servers}", key="id"' for place, name in names.items()}
    for _ in range(2):
        for place, option in options.items():
            shop.sinks(f'rn.sink("ods.orders", rn.kafka({option}), name="orders-{place}")')
            with delivering_in_units() if place == "units" else nullcontext():
                sent = shop.sent()
            assert (sent.place is not None) == (place == "units"), sent
        shop.day("a", (1, "2026-01-01", "7.00"))
        shop.day("b", *((number, "2026-01-03", "1.00") for number in range(10, 40, 2)))
        shop.sinks()
        shop.run()
    found = {place: messages(kafka, name) for place, name in names.items()}
    without_place = {
        place: [
            (key, value, {**headers, "runnel-key": headers["runnel-key"].replace(f"orders-{place}", "orders")})
            for key, value, headers in sent
        ]
        for place, sent in found.items()
    }
    by_place = {place: sorted(map(repr, sent)) for place, sent in without_place.items()}
    assert by_place["units"] == by_place["process"]
    for sent in without_place.values():  # within a key the order is the same
        assert [value["amount"] for key, value, _ in sent if key == {"id": 50} and value] == ["1.00", "1.00", "2.00"]
        assert [value and value["amount"] for key, value, _ in sent if key == {"id": 1}] == ["5.00", "7.00"]
    keys = [headers["runnel-key"] for _, _, headers in found["units"]]
    assert len(set(keys)) == len(keys)


def test_a_unit_that_runs_again_sends_the_same_keys(shop: Shop, kafka: Server, topic: str) -> None:
    declare(shop, kafka, topic)
    with delivering_in_units(AttemptRunner("twice, the last counts")):
        sent = shop.sent()
    assert (sent.rows, sent.place) == (2, WorkPlace(EXECUTORS, "a test"))
    keys = [headers["runnel-key"] for _, _, headers in messages(kafka, topic)]
    assert len(keys) == 4 and len(set(keys)) == 2


def test_with_speculation_this_process_sends(shop: Shop, kafka: Server, topic: str) -> None:
    class SpeculatingRunner(PicklingRunner):
        may_run_twice = True

    declare(shop, kafka, topic)
    with delivering_in_units(SpeculatingRunner()):
        place = shop.sent().place
    reason = "spark.speculation is on, by which two executors would send the same messages at once"
    assert place == WorkPlace(PROCESS, reason) and len(messages(kafka, topic)) == 2


def test_no_secret_is_shown_of_the_work(shop: Shop, kafka: Server, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NAME", "s3cret")
    declare(shop, kafka, topic, ', options={"client.id": rn.secret("KAFKA_NAME")}')
    runner = AttemptRunner("once")
    with delivering_in_units(runner):
        assert shop.sent().state == "delivered"
    assert "MessageSender" in runner.texts[0] and "s3cret" not in str(runner.texts)
