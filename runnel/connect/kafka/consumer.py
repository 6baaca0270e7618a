"""Read spans of partitions, each message of them once, in the order of its partition."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from runnel.connect.kafka.client import KafkaClient
from runnel.connect.kafka.message import KafkaMessage
from runnel.connect.kafka.offset_range import OffsetRange
from runnel.errors import RunnelError, Unreachable
from runnel.model.progress import Progress

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

HandleMessages = Callable[[OffsetRange, list[KafkaMessage]], None]
FindNextOffset = Callable[[OffsetRange, int], int]
"""Called with a span and an offset of it that Kafka does not have; returns where to continue, or raises."""
_MAX_BATCH = 10_000
_MAX_BATCH_BYTES = 16_000_000
_WAIT_SECONDS = 0.1
_STALLED_SECONDS = 60.0
_DOWN_SECONDS = 6.0
_SAMPLED_SPANS, _SAMPLED_MESSAGES, _SAMPLE_SECONDS = 8, 100, 1.0
_MESSAGE_BYTES = 1000  # if no message can be sampled
_TRANSIENT_ERRORS = (
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_MSG_TIMED_OUT", "_WAIT_COORD"),
    *("UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE"),
)
_MISSING_OFFSET_ERRORS = (
    "_AUTO_OFFSET_RESET",
    "OFFSET_OUT_OF_RANGE",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
)


def consume_spans(
    client: KafkaClient,
    spans: Sequence[OffsetRange],
    handle_messages: HandleMessages,
    find_next_offset: FindNextOffset,
    report_progress: Progress,
) -> None:
    """Pass all messages of the spans to `handle_messages`, many at a time."""
    consumer = client.create_consumer()
    try:
        _ConsumerLoop(client, consumer, spans, handle_messages, find_next_offset, report_progress=report_progress).run()
    finally:
        consumer.close()


def sample_message_bytes(client: KafkaClient, spans: Sequence[OffsetRange]) -> int:
    """Return about how many bytes a message of spans has, from the first messages of the longest ones."""
    from confluent_kafka import TopicPartition

    longest_spans = sorted(spans, key=lambda span: span.count, reverse=True)[:_SAMPLED_SPANS]
    count = sum(span.count for span in spans)
    messages: list[KafkaMessage] = []
    if longest_spans:
        consumer = client.create_consumer()
        try:
            consumer.assign([TopicPartition(span.topic, span.partition, span.start) for span in longest_spans])
            sample = consumer.consume(min(_SAMPLED_MESSAGES, count), _SAMPLE_SECONDS)
            messages = [message for message in cast("list[KafkaMessage]", sample) if message.error() is None]
        finally:
            consumer.close()
    sizes = [len(message) + len(message.key() or b"") for message in messages] or [_MESSAGE_BYTES]
    return sum(sizes) // len(sizes)


class _ConsumerLoop:
    """Reads spans once. A partition is done when its end offset is reached, however many messages that took."""

    def __init__(
        self,
        client: KafkaClient,
        consumer: "Consumer",
        spans: Sequence[OffsetRange],
        handle_messages: HandleMessages,
        find_next_offset: FindNextOffset,
        *,
        report_progress: Progress,
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._spans = {(span.topic, span.partition): span for span in spans}
        self._next_offsets = {partition_id: span.start for partition_id, span in self._spans.items()}
        self._total = sum(span.count for span in spans)
        self._handle_messages = handle_messages
        self._find_next_offset = find_next_offset
        self._report_progress = report_progress
        self._batch_size = 100  # until the size of messages is known

    def run(self) -> None:
        self._report_progress("reading messages", 0, self._total)
        self._assign_partitions()
        progressed_at = checked_at = time.monotonic()
        while remaining := self._count_remaining():
            batch = cast("list[KafkaMessage]", self._consumer.consume(min(self._batch_size, remaining), _WAIT_SECONDS))
            self._process_batch(batch)
            if batch:
                size = sum(map(len, batch)) // len(batch)
                self._batch_size = max(1, min(_MAX_BATCH, _MAX_BATCH_BYTES // (size + 1)))
            remaining_now, batch_at = self._count_remaining(), time.monotonic()
            if remaining_now != remaining:
                progressed_at = checked_at = batch_at
                self._client.clear_errors()
            elif batch_at - progressed_at > _STALLED_SECONDS:
                raise self._stalled_error()
            elif (
                batch_at - checked_at > _DOWN_SECONDS
            ):  # even if the client reported no error: it reports each one only once
                self._check_brokers()
                checked_at = time.monotonic()
            self._report_progress("reading messages", self._total - remaining_now, self._total)

    def _assign_partitions(self) -> None:
        """Assign the unfinished partitions from their next offsets on, so that no message is read twice."""
        from confluent_kafka import TopicPartition

        unfinished = [
            (partition_id, next_offset)
            for partition_id, next_offset in self._next_offsets.items()
            if next_offset < self._spans[partition_id].end
        ]
        self._consumer.assign([TopicPartition(*partition_id, next_offset) for partition_id, next_offset in unfinished])

    def _count_remaining(self) -> int:
        return sum(max(span.end - self._next_offsets[partition_id], 0) for partition_id, span in self._spans.items())

    def _process_batch(self, batch: Iterable[KafkaMessage]) -> None:
        messages_by_partition: dict[tuple[str, int], list[KafkaMessage]] = {}
        error_events: list[tuple[tuple[str, int], int, KafkaError]] = []
        for message in batch:
            partition_id = (message.topic(), message.partition())
            if (error := message.error()) is not None:
                error_events.append((partition_id, message.offset(), error))
            elif partition_id in messages_by_partition:
                messages_by_partition[partition_id].append(message)
            else:
                messages_by_partition[partition_id] = [message]
        for partition_id, messages in messages_by_partition.items():
            self._process_messages(partition_id, messages)
        for event in error_events:  # after the messages: the end of a partition implies that all before it were handled
            self._handle_error(*event)

    def _process_messages(self, partition_id: tuple[str, int], messages: list[KafkaMessage]) -> None:
        span, next_offset = self._spans[partition_id], self._next_offsets[partition_id]
        last_offset = messages[-1].offset()
        if messages[0].offset() < next_offset or last_offset >= span.end:
            messages = [message for message in messages if next_offset <= message.offset() < span.end]
        if messages:
            self._handle_messages(span, messages)
        self._advance_to(partition_id, last_offset + 1)

    def _advance_to(self, partition_id: tuple[str, int], offset: int) -> None:
        from confluent_kafka import TopicPartition

        was_done = self._next_offsets[partition_id] >= self._spans[partition_id].end
        self._next_offsets[partition_id] = max(self._next_offsets[partition_id], offset)
        if not was_done and self._next_offsets[partition_id] >= self._spans[partition_id].end:
            self._consumer.pause([TopicPartition(*partition_id)])

    def _handle_error(self, partition_id: tuple[str, int], offset: int, error: "KafkaError") -> None:
        """Continue if an error is transient; raise if a message can't be read: none is ever skipped silently."""
        name = error.name()
        if name == "_PARTITION_EOF":
            self._advance_to(partition_id, offset)
        elif name in _MISSING_OFFSET_ERRORS and partition_id in self._spans:
            self._next_offsets[partition_id] = self._find_next_offset(
                self._spans[partition_id], self._next_offsets[partition_id]
            )
            self._assign_partitions()
        elif name in _TRANSIENT_ERRORS or name.startswith("GROUP_"):
            self._client.record_error(error)
        else:
            location = f"{partition_id[0]}[{partition_id[1]}], offset {offset}" if partition_id[0] else "Kafka"
            if error.retriable() or "AUTH" in name or name == "_SSL":
                raise self._client.translate_error(error)
            what = f"{location} can't be read: {self._client.hide_secrets(error.str())}"
            raise RunnelError("SOURCE_KAFKA_MESSAGE", what, at=self._client.at, fix="check the topic and Kafka's log")

    def _check_brokers(self) -> None:
        """Raise if no broker answers or a topic was deleted. Otherwise keep waiting: another broker may take over."""
        partition_id, next_offset = next(
            (partition_id, next_offset)
            for partition_id, next_offset in self._next_offsets.items()
            if next_offset < self._spans[partition_id].end
        )
        self._next_offsets[partition_id] = self._find_next_offset(self._spans[partition_id], next_offset)

    def _stalled_error(self) -> RunnelError:
        if self._client.last_error:
            return self._client.translate_error(self._client.last_error)
        unfinished = [
            span.partition_name
            for partition_id, span in self._spans.items()
            if self._next_offsets[partition_id] < span.end
        ]
        what = f"nothing arrived from {', '.join(unfinished[:5])} for {_STALLED_SECONDS:.0f} seconds"
        return Unreachable("KAFKA_UNREACHABLE", what, at=self._client.at, fix="check Kafka's log")
