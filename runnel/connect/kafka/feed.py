"""Read Kafka topics as a feed: from the end of the last run up to now. Its state is offsets."""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows
from runnel.connect.kafka.bad_messages import BadMessages
from runnel.connect.kafka.client import KafkaClient
from runnel.connect.kafka.consumer import consume_spans
from runnel.connect.kafka.expired_messages import ExpiredMessages
from runnel.connect.kafka.message_files import build_writer_factory
from runnel.connect.kafka.offset_plan import (
    OffsetPlan,
    describe_plan,
    offsets_in_state,
    plan_offsets,
    refuse_expired,
    refuse_recreated,
)
from runnel.connect.kafka.offset_range import OffsetRange
from runnel.connect.kafka.offsets import PartitionId, TopicOffsets, fetch_offsets_at_time, fetch_topic_offsets
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Source
from runnel.model.progress import Progress

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from runnel.connect.kafka.message import KafkaMessage


class KafkaFeed:
    """The feed of Kafka topics. `root` is the project's folder, which contains the Avro schemas.

    Connections live as long as the feed.
    """

    def __init__(self, source: Source, origin: Kafka, root: Path) -> None:
        self._source = source
        self._origin = origin
        self._root = root

    def find_changes(self, state: FeedState | None, *, max_rows: int | None = None) -> FeedChanges:
        """Return how many messages were added since a state, without reading them.

        If `max_rows` is set, about that many messages are announced at a time.
        """
        client, admin = self._client, self._admin
        topic_offsets = fetch_topic_offsets(client, admin, self._origin)
        client.clear_errors()
        refuse_recreated(self._source, state, topic_offsets)
        new_partitions = [
            partition_id for partition_id in topic_offsets.high if partition_id[0] not in offsets_in_state(state)
        ]
        starts = self._choose_starts(new_partitions, topic_offsets, is_first=state is None)
        if self._origin.start not in ("earliest", "latest") and new_partitions:
            offsets_at_start = fetch_offsets_at_time(client, admin, new_partitions, self._origin.start)
            starts = {
                partition_id: offset if offset >= 0 else topic_offsets.high[partition_id]
                for partition_id, offset in offsets_at_start.items()
            }
        plan = plan_offsets(state, topic_offsets, starts).limit_to(max_rows)
        refuse_expired(self._source, self._origin, plan.lost)
        if state is not None and plan.after == dict(state):
            return FeedChanges("no new messages", is_empty=True)
        lost = [[*partition_id, count] for partition_id, count in plan.lost.items()]
        until = {"spans": [[*vars(span).values()] for span in plan.spans], "after": plan.after, "lost": lost}
        return FeedChanges(
            describe_plan(plan, topic_offsets),
            until=until,
            rows=plan.count,
            identity=self._identity(plan, topic_offsets),
        )

    def fetch(
        self, state: FeedState | None, changes: FeedChanges, folder: Path, report_progress: Progress
    ) -> FetchedRows:
        """Read exactly the announced messages; the source's policy decides about those that expired meanwhile."""
        assert changes.until is not None and changes.identity is not None
        spans = [OffsetRange(*values) for values in changes.until["spans"]]
        bad_messages = BadMessages(self._source)
        client, timestamps = self._client, list[int]()
        lost_before = {(topic, number): count for topic, number, count in changes.until["lost"]}
        expired = ExpiredMessages(self._source, self._origin, client, changes.until["after"]["ids"], lost_before)
        writer_factory = build_writer_factory(
            self._source, self._origin, self._root, folder, bad_messages, span_count=len(spans)
        )
        writers = {span: writer_factory.create_writer(span) for span in spans}

        def take(span: OffsetRange, messages: "list[KafkaMessage]") -> None:
            timestamps.append(messages[0].timestamp()[1])
            writers[span].add_messages(messages)

        if spans:
            consume_spans(client, spans, take, expired.find_next_offset, report_progress)
            expired.refuse_recreated_topics({span.topic for span in spans})
        parts = [part for writer in writers.values() for part in writer.close()]
        bad_messages.refuse_if_stop()
        all_parts = tuple(parts or (writer_factory.write_empty_part() if state is None else ()))
        identity = expired.identity(changes.identity)
        oldest_at = min(timestamps) / 1000 if timestamps else None
        new_state = changes.until["after"]
        return FetchedRows(
            all_parts, new_state, identity, bad_rows=bad_messages.rows, warnings=expired.warnings, oldest_at=oldest_at
        )

    @cached_property
    def _client(self) -> KafkaClient:
        return KafkaClient(self._origin, str(self._source.place))

    @cached_property
    def _admin(self) -> "AdminClient":
        return self._client.create_admin()

    def _choose_starts(
        self, new_partitions: list[PartitionId], topic_offsets: TopicOffsets, *, is_first: bool
    ) -> Mapping[PartitionId, int]:
        """Return the start offsets of topics that are not in the state.

        A topic that matches the pattern only since the last run is read from its beginning.
        """
        starts_at_end = self._origin.start == "latest" and (is_first or self._origin.pattern is None)
        return {
            partition_id: (topic_offsets.high if starts_at_end else topic_offsets.low)[partition_id]
            for partition_id in new_partitions
        }

    def _identity(self, plan: OffsetPlan, topic_offsets: TopicOffsets) -> str:
        """Return an id of the rows: these messages of these topics, read with these options."""
        origin = self._origin
        read_options = [
            origin.format,
            origin.avro,
            origin.wire,
            origin.include,
            repr(origin.schema),
            self._source.partition,
        ]
        messages = [[topic_offsets.ids[span.topic], *vars(span).values()] for span in plan.spans]
        text = json.dumps([topic_offsets.cluster, messages, read_options])
        return f"kafka:{hashlib.sha256(text.encode()).hexdigest()}"
