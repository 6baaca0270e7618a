"""The feed of Kafka by itself: where it starts, what it reads, and what it says when Kafka is not as it was."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from runnel.connect.kafka import consumer
from runnel.declare.model.secret import Secret
from runnel.errors import Mistake, RunnelError
from tests.connect.kafka.kafka_project import IN_BOTH_PLACES, A, B, C, Clicks, open_clicks
from tests.servers.kafka import Server


@pytest.fixture
def clicks(request: pytest.FixtureRequest, kafka: Server, tmp_path: Path) -> Clicks:
    return open_clicks(request, kafka, tmp_path)


def expire(clicks: Clicks, offset: int) -> None:
    place = TopicPartition(clicks.topic, 0, offset)
    for future in clicks.server.admin.delete_records([place]).values():
        future.result(20)


def remake(clicks: Clicks) -> None:
    clicks.server.admin.delete_topics([clicks.topic], operation_timeout=20)[clicks.topic].result(20)
    clicks.server.settle(clicks.topic, 0)
    clicks.make()


@IN_BOTH_PLACES
def test_several_topics_and_a_pattern(clicks: Clicks) -> None:
    one, two = clicks.make(name="_a"), clicks.make(name="_b")
    clicks.make(name="x")
    clicks.put(A, name="_a")
    clicks.put(B, name="_b")
    clicks.put(C, name="x")
    both, fitting = clicks.feed(topic=[one, two]), clicks.feed(pattern=f"{clicks.topic}_.*", start="latest")
    assert both.news().summary == f"2 new messages in 2 partitions of {one}, {two}"
    assert sorted(both.ids()) == [1, 2]
    assert fitting.ids() == []
    clicks.make(name="_c")
    clicks.put(C, name="_c")
    assert fitting.ids() == [3]  # it came after the first run, so it is new from its beginning
    assert fitting.news().is_empty


@IN_BOTH_PLACES
def test_where_it_starts(clicks: Clicks) -> None:
    clicks.make(2)
    clicks.put(A, timestamp=1_000_000_000_000)
    clicks.put(B, timestamp=1_700_000_000_000)
    clicks.put(C, timestamp=1_000_000_000_000, partition=1)
    later = datetime.fromtimestamp(1_500_000_000, UTC)
    for start, ids in {"earliest": [1, 2, 3], "latest": [], later: [2], "2050-01-01": []}.items():
        feed = clicks.feed(start=start)
        assert sorted(feed.ids()) == ids
        assert feed.state is not None and feed.state["offsets"] == {clicks.topic: {"0": 2, "1": 1}}
        assert feed.news().is_empty


def test_a_topic_that_is_named_later_starts_where_the_source_says(clicks: Clicks) -> None:
    clicks.make()
    clicks.make(name="_b")
    clicks.put(A)
    clicks.put(B, name="_b")
    feed = clicks.feed()
    assert feed.ids() == [1]
    feed.also(topics=(clicks.topic, f"{clicks.topic}_b"))
    assert feed.ids() == [2]


def test_a_partition_that_was_added_starts_at_its_beginning(clicks: Clicks) -> None:
    clicks.make()
    clicks.put(A)
    feed = clicks.feed(start="latest")
    assert feed.ids() == []
    clicks.server.admin.create_partitions([NewPartitions(clicks.topic, 2)])[clicks.topic].result(20)
    clicks.server.settle(clicks.topic, 2)
    clicks.server.producer.list_topics(clicks.topic)
    clicks.put(B, partition=1)
    assert feed.ids() == [2]


@IN_BOTH_PLACES
def test_expired_messages_stop_or_are_skipped(clicks: Clicks) -> None:
    clicks.make()
    clicks.put(A)
    feed = clicks.feed()
    assert feed.ids() == [1]
    clicks.put(B, B, C)
    announced = feed.news()
    expire(clicks, 3)
    for ask in (lambda: feed.read(announced), feed.news):
        with pytest.raises(RunnelError) as raised:
            ask()
        error = raised.value
        assert (error.code, error.at) == ("SOURCE_KAFKA_EXPIRED", "flows/flow.py:4")
        assert error.what == f"2 messages expired before they were read: {clicks.topic}[0] lacks 2"
        assert "runnel rewind ods.clicks" in str(error.fix) and 'expired="skip"' in str(error.fix)
    feed.also(expired="skip")
    assert feed.news().summary.endswith(f"of {clicks.topic}; {error.what}")
    assert feed.ids() == [3]
    assert feed.last.warnings == (error.what,)
    assert feed.news().is_empty


@IN_BOTH_PLACES
def test_all_expired_is_skipped_once(clicks: Clicks) -> None:
    clicks.make()
    clicks.put(A)
    feed = clicks.feed(expired="skip")
    feed.read()
    clicks.put(B)
    expire(clicks, 2)
    assert "1 message expired" in feed.news().summary
    assert feed.ids() == []
    assert feed.news().is_empty


@pytest.mark.parametrize("more", [0, 3], ids=["fewer messages", "more messages"])
def test_a_topic_that_was_made_anew(clicks: Clicks, more: int) -> None:
    clicks.make()
    clicks.put(A, B)
    feed = clicks.feed()
    feed.read()
    remake(clicks)
    clicks.put(*[C] * more)
    with pytest.raises(RunnelError) as raised:
        feed.news()
    assert raised.value.code == "SOURCE_KAFKA_RESET" and "was deleted and created again" in raised.value.what
    assert "runnel rewind ods.clicks" in str(raised.value.fix)


def test_an_unknown_topic_is_told_and_not_made(clicks: Clicks) -> None:
    clicks.make()
    for options in ({"topic": clicks.topic + "z"}, {"pattern": "no such .*"}):
        with pytest.raises(Mistake) as raised:
            clicks.feed(**options).news()
        assert raised.value.code == "SOURCE_KAFKA_TOPIC"
    with pytest.raises(Mistake, match=f"close: `{clicks.topic}`"):
        clicks.feed(topic=clicks.topic + "z").news()


def test_an_option_that_there_is_not(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_SECRET", "x4711")
    wrong = {"no.such": "1", "security.protocol": Secret("KAFKA_SECRET")}
    for name, value in wrong.items():
        with pytest.raises(Mistake) as raised:
            clicks.feed(options={name: value}).news()
        assert raised.value.code == "KAFKA_OPTIONS" and name in raised.value.what and "x4711" not in str(raised.value)


@IN_BOTH_PLACES
def test_gaps_keep_lines_and_offsets_together(clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks.make()
    producer = Producer({"bootstrap.servers": clicks.server.servers, "transactional.id": clicks.topic, "log_level": 0})
    producer.init_transactions(20)
    for value, is_kept in (('{"id": 1}', True), ('{"id": 2}', False), ('{"id": 3}', True), ('{"id": 4}', False)):
        producer.begin_transaction()
        producer.produce(clicks.topic, value)
        producer.flush(20)
        (producer.commit_transaction if is_kept else producer.abort_transaction)(20)
    producer.begin_transaction()
    producer.produce(clicks.topic, '{"id": 5}')
    producer.flush(20)
    feed = clicks.feed()
    assert feed.ids() == [1, 3]
    (part,) = feed.last.parts
    assert part.name == f"{clicks.topic}[0] from 0 to 4"
    assert part.path.read_text().split("\n") == ['{"id": 1}', "", "", "", '{"id": 3}', ""]
    assert feed.news().is_empty  # the last transaction is open
    producer.commit_transaction(20)
    assert [row["id"] for row in feed.read(feed.waited())] == [5]
    assert [part.name for part in feed.last.parts] == [f"{clicks.topic}[0] from 8 to 8"]
    monkeypatch.setattr(consumer, "_WAIT_SECONDS", 0.5)  # so that the end comes together with the messages before it
    again = clicks.feed(format="raw")
    assert [row["offset"] for row in again.read()] == [0, 4, 8]
    assert [part.name for part in again.last.parts] == [f"{clicks.topic}[0] from 0 to 8, with gaps"]


@IN_BOTH_PLACES
def test_a_large_message_is_read_or_told(clicks: Clicks) -> None:
    clicks.make(max_message_bytes="60000000")
    clicks.put(A, b'{"id": 2, "page": "' + b"x" * 50_000_000 + b'"}', C)
    found = clicks.feed(format="raw").read()
    assert [len(row["value"]) for row in found] == [22, 50_000_021, 22]
    with pytest.raises(RunnelError) as raised:
        clicks.feed().read()
    assert f"{clicks.topic}[0], offset 1: it has 50,000,021 bytes" in raised.value.what


@IN_BOTH_PLACES
def test_many_messages_come_in_order(clicks: Clicks) -> None:
    clicks.make(3)
    for partition in range(3):
        clicks.put(*[{"id": number} for number in range(partition, 30_000, 3)], partition=partition)
    feed = clicks.feed()
    assert feed.ids() == [number for partition in range(3) for number in range(partition, 30_000, 3)]
    assert [part.name for part in feed.last.parts] == [f"{clicks.topic}[{one}] from 0 to 9999" for one in range(3)]
