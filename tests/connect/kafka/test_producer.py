"""The producer that sinks write with: all messages or an error."""

import os
from pathlib import Path

import pytest

from runnel.connect.kafka.producer import OutgoingMessage, Producer
from runnel.declare.model.endpoints import Kafka
from runnel.errors import RunnelError, Unreachable
from tests.connect.kafka.kafka_project import Clicks
from tests.servers.kafka import Server


@pytest.fixture
def clicks(kafka: Server, tmp_path: Path) -> Clicks:
    clicks = Clicks(kafka, tmp_path)
    clicks.make()
    return clicks


def test_all_messages_come_in_order(clicks: Clicks) -> None:
    with Producer(Kafka(clicks.server.servers, (clicks.topic,))) as producer:
        sent = producer.send(OutgoingMessage(b"%d" % number, b"k", [("run", b"r1")]) for number in range(20_000))
        producer.send([OutgoingMessage(None, b"gone")])
    rows = clicks.feed(format="raw").read()
    assert sent == 20_000 and [row["value"] for row in rows] == [*(b"%d" % number for number in range(20_000)), None]
    assert (rows[0]["key"], rows[0]["headers"]) == (b"k", '{"run": "r1"}')


def test_what_was_not_sent_when_an_error_came_is_dropped(clicks: Clicks) -> None:
    with pytest.raises(ZeroDivisionError), Producer(Kafka(clicks.server.servers, (clicks.topic,))) as producer:
        producer.send(OutgoingMessage(b"%d" % (10 // number)) for number in range(3, -1, -1))
    assert len(clicks.feed(format="raw").read()) <= 3


def test_a_message_that_is_too_large_is_told(clicks: Clicks) -> None:
    small = clicks.make(name="_small", max_message_bytes="1000")
    with (
        pytest.raises(RunnelError) as raised,
        Producer(Kafka(clicks.server.servers, (small,)), "flows/a.py:3") as producer,
    ):
        producer.send([OutgoingMessage(os.urandom(10_000))])
    assert (raised.value.code, raised.value.at) == ("KAFKA_WRITE", "flows/a.py:3")
    assert f"the topic `{small}` did not accept all messages: a message is larger" in raised.value.what


def test_nobody_there() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 does not answer"):
        Producer(Kafka("127.0.0.1:1", ("clicks",)))
