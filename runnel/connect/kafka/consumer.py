"""Read spans of partitions, each message of them once, in the order of its partition."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from runnel.connect.feed.protocol import Progress
from runnel.connect.kafka.client import Client
from runnel.connect.kafka.message import Message
from runnel.connect.kafka.offset_range import Span
from runnel.errors import RunnelError, Unreachable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

Take = Callable[[Span, list[Message]], None]
Missed = Callable[[Span, int], int]
"""Called with a span and the offset in it that Kafka does not have; returns where to go on, or raises."""
_AT_ONCE = 10_000
_BYTES_AT_ONCE = 16_000_000
_WAIT_SECONDS = 0.1
_STALLED_SECONDS = 60.0
_DOWN_SECONDS = 6.0
_PASSING = (
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_MSG_TIMED_OUT", "_WAIT_COORD"),
    *("UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE"),
)
_MISSED = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")


def consume(client: Client, spans: Sequence[Span], take: Take, missed: Missed, tell: Progress) -> None:
    """Hand all messages of the spans to `take`, many at once."""
    consumer = client.consumer()
    try:
        _Reading(client, consumer, spans, take, missed, tell).run()
    finally:
        consumer.close()


class _Reading:
    """One pass over spans. A partition is done when its end is passed, whatever number of messages that took."""

    def __init__(
        self, client: Client, consumer: "Consumer", spans: Sequence[Span], take: Take, missed: Missed, tell: Progress
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._spans = {(span.topic, span.partition): span for span in spans}
        self._at = {place: span.start for place, span in self._spans.items()}
        self._total = sum(span.count for span in spans)
        self._take = take
        self._missed = missed
        self._tell = tell
        self._at_once = 100  # until it is known how large they are

    def run(self) -> None:
        self._tell("reading messages", 0, self._total)
        self._assign()
        moved_at = asked_at = time.monotonic()
        while left := self._left():
            batch = cast("list[Message]", self._consumer.consume(min(self._at_once, left), _WAIT_SECONDS))
            self._passed(batch)
            if batch:
                size = sum(map(len, batch)) // len(batch)
                self._at_once = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // (size + 1)))
            now, at = self._left(), time.monotonic()
            if now != left:
                moved_at = asked_at = at
                self._client.calm()
            elif at - moved_at > _STALLED_SECONDS:
                raise self._stalled()
            elif at - asked_at > _DOWN_SECONDS:  # whether or not the client told of trouble: it tells only once
                self._ask()
                asked_at = time.monotonic()
            self._tell("reading messages", self._total - now, self._total)

    def _assign(self) -> None:
        """Read on in each partition from where it is now; what came already is not handed over again."""
        from confluent_kafka import TopicPartition

        due = [(place, at) for place, at in self._at.items() if at < self._spans[place].end]
        self._consumer.assign([TopicPartition(*place, at) for place, at in due])

    def _left(self) -> int:
        return sum(max(span.end - self._at[place], 0) for place, span in self._spans.items())

    def _passed(self, batch: Iterable[Message]) -> None:
        groups: dict[tuple[str, int], list[Message]] = {}
        others: list[tuple[tuple[str, int], int, KafkaError]] = []
        for message in batch:
            place = (message.topic(), message.partition())
            if (error := message.error()) is not None:
                others.append((place, message.offset(), error))
            elif place in groups:
                groups[place].append(message)
            else:
                groups[place] = [message]
        for place, messages in groups.items():
            self._taken(place, messages)
        for event in others:  # after the messages: that a partition ends says that those before it were handed over
            self._heard(*event)

    def _taken(self, place: tuple[str, int], messages: list[Message]) -> None:
        span, at = self._spans[place], self._at[place]
        last = messages[-1].offset()
        if messages[0].offset() < at or last >= span.end:
            messages = [message for message in messages if at <= message.offset() < span.end]
        if messages:
            self._take(span, messages)
        self._reached(place, last + 1)

    def _reached(self, place: tuple[str, int], offset: int) -> None:
        from confluent_kafka import TopicPartition

        is_done = self._at[place] >= self._spans[place].end
        self._at[place] = max(self._at[place], offset)
        if not is_done and self._at[place] >= self._spans[place].end:
            self._consumer.pause([TopicPartition(*place)])

    def _heard(self, place: tuple[str, int], offset: int, error: "KafkaError") -> None:
        """Go on where it will pass; raise where the message can't be had: it is never left out silently."""
        name = error.name()
        if name == "_PARTITION_EOF":
            self._reached(place, offset)
        elif name in _MISSED and place in self._spans:
            self._at[place] = self._missed(self._spans[place], self._at[place])
            self._assign()
        elif name in _PASSING or name.startswith("GROUP_"):
            self._client.note(error)
        else:
            where = f"{place[0]}[{place[1]}], offset {offset}" if place[0] else "Kafka"
            if error.retriable() or "AUTH" in name or name == "_SSL":
                raise self._client.told(error)
            what = f"{where} can't be read: {self._client.scrubbed(error.str())}"
            raise RunnelError(
                "SOURCE_KAFKA_MESSAGE", what, at=self._client.at, fix="look at the topic and at Kafka's log"
            )

    def _ask(self) -> None:
        """Raise where nobody answers, or a topic is gone. Else wait on: of several servers another takes over."""
        place, at = next((place, at) for place, at in self._at.items() if at < self._spans[place].end)
        self._at[place] = self._missed(self._spans[place], at)

    def _stalled(self) -> RunnelError:
        if self._client.last:
            return self._client.told(self._client.last)
        left = [span.place for place, span in self._spans.items() if self._at[place] < span.end]
        what = f"nothing came from {', '.join(left[:5])} for {_STALLED_SECONDS:.0f} seconds"
        return Unreachable("KAFKA_UNREACHABLE", what, at=self._client.at, fix="look at Kafka's log")
