"""Kafka that is no longer as it was when it was asked: messages expire, topics go and come, and the broker dies."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from runnel.connect.kafka import client, consumer
from runnel.errors import RunnelError, Unreachable
from runnel.model.progress import Progress
from runnel.model.run_request import RunRequest
from runnel.project.execution.run_project import run_project
from runnel.run.results.run_result import Event, RunResult
from tests.connect.kafka.kafka_project import IN_BOTH_PLACES, SCHEMA, A, B, C, Clicks, open_clicks
from tests.connect.kafka.test_feed import expire, remake
from tests.servers.kafka import Server

# A client that reads little ahead, so that what happens to Kafka happens in the middle.
LITTLE = {
    "fetch.max.bytes": 20_000,
    "fetch.message.max.bytes": 20_000,
    "message.max.bytes": 20_000,
    "queued.max.messages.kbytes": 20,
    "queued.min.messages": 1,
}
MANY = [{"id": number, "page": "x" * 100} for number in range(20_000)]


@pytest.fixture
def clicks(request: pytest.FixtureRequest, kafka: Server, tmp_path: Path) -> Clicks:
    return open_clicks(request, kafka, tmp_path)


def midway(act: Callable[[], object]) -> Progress:
    """Return what acts once, when some of what is read has come."""
    acted: list[int] = []

    def tell(what: str, done: int, total: int | None) -> None:
        if done and not acted:
            acted.append(done)
            assert total is not None and done < total // 2
            act()

    return tell


def run_while(clicks: Clicks, act: Callable[[], object]) -> RunResult:
    """Run, and act when messages have been announced and none is read."""

    def watch(event: Event) -> None:
        if event.kind == "start":
            act()

    with clicks.project.open() as lake:
        return run_project(lake, RunRequest(), watch=watch)


@IN_BOTH_PLACES
def test_a_run_goes_on_without_what_expired_since_it_was_planned(clicks: Clicks) -> None:
    clicks.make()
    clicks.declare(f'schema="{SCHEMA}", expired="skip"')
    clicks.put(A)
    clicks.run()
    clicks.put(B, B, C)
    ran = run_while(clicks, lambda: expire(clicks, 3))
    assert not ran.errors and clicks.rows() == [(1, "a"), (3, "c")]
    assert ran.steps[0].warnings == (f"2 messages expired before they were read: {clicks.topic}[0] lacks 2",)
    assert clicks.run() == {}


@IN_BOTH_PLACES
def test_a_run_stops_where_messages_expired_since_it_was_planned(clicks: Clicks) -> None:
    clicks.make()
    clicks.declare()
    clicks.put(A, B, C)
    ran = run_while(clicks, lambda: expire(clicks, 2))
    assert [error.code for error in ran.errors] == ["SOURCE_KAFKA_EXPIRED"] and ran.exit_code == 1
    assert "lacks 2" in ran.errors[0].what and ran.commit is None
    clicks.declare(f'schema="{SCHEMA}", expired="skip"')
    clicks.run()
    assert clicks.rows() == [(3, "c")]


def test_what_expires_in_the_middle_is_counted(clicks: Clicks) -> None:
    clicks.make()
    clicks.put(*MANY)
    feed = clicks.feed(expired="skip", options=LITTLE)
    announced = feed.news()
    ids = [row["id"] for row in feed.read(announced, midway(lambda: expire(clicks, 19_000)))]
    assert ids == sorted(set(ids)) and ids[-1_000:] == list(range(19_000, 20_000))
    lost = len(MANY) - len(ids)
    assert lost > 0 and feed.last.warnings[0].startswith(f"{lost:,} messages expired")
    assert feed.last.identity != announced.identity  # a branch that had them all has other rows
    assert feed.news().is_empty


@IN_BOTH_PLACES
def test_all_that_was_announced_expired(clicks: Clicks) -> None:
    clicks.make(2)
    clicks.put(A, B)
    clicks.put(C, partition=1)
    feed = clicks.feed(expired="skip")
    announced = feed.news()
    clicks.put(A, A)
    expire(clicks, 3)
    assert [row["id"] for row in feed.read(announced)] == [3]
    assert "2 messages expired" in feed.last.warnings[0]
    assert feed.ids() == [1]  # one of those that came later expired too
    assert "lacks 1" in feed.last.warnings[0]


@IN_BOTH_PLACES
@pytest.mark.parametrize("more", [[C], [C] * 5], ids=["fewer messages", "more messages"])
def test_a_topic_that_is_made_anew_while_it_is_read(clicks: Clicks, more: list[object]) -> None:
    clicks.make()
    clicks.declare()
    clicks.put(A, B)
    clicks.run()
    clicks.put(A)

    def anew() -> None:
        remake(clicks)
        clicks.put(*more)

    ran = run_while(clicks, anew)
    assert [error.code for error in ran.errors] == ["SOURCE_KAFKA_RESET"] and ran.commit is None
    assert clicks.fails().code == "SOURCE_KAFKA_RESET"
    with clicks.project.open() as lake:
        first = lake.log()[-1]
        lake.rewind("ods.clicks", to=first.id)
    clicks.run()
    assert clicks.rows() == [(3, "c")] * len(more)


@IN_BOTH_PLACES
@pytest.mark.parametrize("way", ["by its name", "by a pattern"])
def test_a_topic_that_goes_while_it_is_read(clicks: Clicks, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "_DOWN_SECONDS", 0.2)
    clicks.make()
    clicks.put(A, B)
    clicks.make(name="_b")
    named = {"pattern": f"{clicks.topic}.*"} if way == "by a pattern" else {}
    feed = clicks.feed(options={"topic.metadata.propagation.max.ms": 0}, **named)
    announced = feed.news()
    clicks.server.admin.delete_topics([clicks.topic], operation_timeout=20)[clicks.topic].result(20)
    clicks.server.settle(clicks.topic, 0)
    with pytest.raises(RunnelError, match=f"topic `{clicks.topic}`") as raised:
        feed.read(announced)
    assert raised.value.code == "SOURCE_KAFKA_TOPIC"


def test_a_partition_that_was_added_is_read_from_its_beginning(clicks: Clicks) -> None:
    clicks.make()
    clicks.declare()
    clicks.put(A)
    clicks.run()
    clicks.server.admin.create_partitions([NewPartitions(clicks.topic, 2)])[clicks.topic].result(20)
    clicks.server.settle(clicks.topic, 2)
    clicks.server.producer.list_topics(clicks.topic)
    clicks.put(B, C, partition=1)
    clicks.run()
    assert clicks.run() == {} and clicks.rows() == [(1, "a"), (2, "b"), (3, "c")]


def test_a_broker_that_dies_in_the_middle_is_read_when_it_is_back(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "_DOWN_SECONDS", 0.2)
    monkeypatch.setattr(client, "_DOWN_SECONDS", 0.3)
    monkeypatch.setattr("runnel.run.sources.feed_source._RETRIES", 0)
    clicks.make()
    clicks.declare(f'schema="{SCHEMA}", options={LITTLE}')
    clicks.put(*MANY)
    die = midway(clicks.server.kill)

    def watch(event: Event) -> None:
        if event.kind == "progress" and event.done is not None:
            die("", event.done, event.total)

    with clicks.project.open() as lake:
        ran = run_project(lake, RunRequest(), watch=watch)
    try:
        (error,) = ran.errors
        assert isinstance(error, Unreachable) and error.code == "KAFKA_UNREACHABLE"
        assert ran.exit_code == 3 and ran.commit is None
        error = clicks.fails()  # now nobody answers from the beginning on
        assert isinstance(error, Unreachable) and error.code == "KAFKA_UNREACHABLE"
        assert clicks.server.servers in error.what and "flows/flow.py" in str(error)
    finally:
        clicks.server.start()
        clicks.server.settle(clicks.topic, 1)
    clicks.run()
    assert clicks.run() == {} and [row[0] for row in sorted(clicks.rows())] == [one["id"] for one in MANY]
