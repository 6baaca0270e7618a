"""Read Kafka topics as a feed: from the end of the last run up to now. Its state is offsets."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.feed.protocol import FeedChanges, FeedState, FetchedRows, FetchPlace
from runnel.connect.kafka.bad_messages import BadMessages
from runnel.connect.kafka.client import KafkaClient
from runnel.connect.kafka.consumer import sample_message_bytes
from runnel.connect.kafka.expired_messages import ExpiredMessages
from runnel.connect.kafka.message_files import build_writer_factory
from runnel.connect.kafka.message_units import MessageFetcher, divide_ranges, prepare_source, read_messages
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

    from runnel.connect.ingest.bad_rows import QuarantineOutput


_SAMPLED_FROM = 100_000  # messages


@dataclass(frozen=True)
class _Reading:
    """The announced ranges while they are read, and what is wrong with their messages."""

    ranges: tuple[OffsetRange, ...]
    ids: Mapping[str, str]
    bad_messages: BadMessages
    expired: ExpiredMessages

    def check(self) -> None:
        """Raise if other messages were read than announced, or bad ones that stop the source."""
        if self.ranges:
            self.expired.refuse_recreated_topics({span.topic for span in self.ranges})
        self.bad_messages.refuse_if_stop()

    def build_result(self, changes: FeedChanges, oldest_ms: int | None) -> FetchedRows:
        """Return what was read, without its files."""
        assert changes.until is not None and changes.identity is not None
        facts = self.bad_messages.finish()
        return FetchedRows(
            (),
            changes.until["after"],
            self.expired.identity(changes.identity),
            quarantine_files=facts.quarantine_files,
            dropped=facts.count,
            warnings=self.expired.warnings,
            oldest_at=oldest_ms / 1000 if oldest_ms is not None else None,
        )


class KafkaFeed:
    """The feed of Kafka topics. `root` is the project's folder, which contains the Avro schemas.

    Connections live as long as the feed.
    """

    def __init__(self, source: Source, origin: Kafka, root: Path) -> None:
        self._source = source
        self._origin = origin
        self._root = root
        self._message_bytes: int | None = None  # of a message, on average
        self._quarantine_output: QuarantineOutput | None = None

    def quarantine_to(self, output: "QuarantineOutput") -> None:
        """Remember where bad messages go."""
        self._quarantine_output = output

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
        full_plan = plan_offsets(state, topic_offsets, starts)
        plan = full_plan.limit_to(max_rows)
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
            waiting_rows=full_plan.count,
            estimate_bytes=cache(lambda: self._estimate_bytes(plan)),
        )

    def fetch(
        self, state: FeedState | None, changes: FeedChanges, folder: Path, report_progress: Progress
    ) -> FetchedRows:
        """Read exactly the announced messages; the source's policy decides about those that expired meanwhile."""
        reading = self._begin_reading(changes)
        writer_factory = build_writer_factory(
            self._source, self._origin, self._root, folder, reading.bad_messages, span_count=len(reading.ranges)
        )
        files = read_messages(self._client, reading.ranges, writer_factory, reading.expired, report_progress)
        reading.check()
        parts = files.parts or tuple(writer_factory.write_empty_part() if state is None else ())
        return replace(reading.build_result(changes, files.oldest_ms), parts=parts)

    def fetch_in_units(self, state: FeedState | None, changes: FeedChanges, place: FetchPlace) -> FetchedRows:
        """Read exactly the announced messages, in units of some ranges of offsets."""
        reading = self._begin_reading(changes)
        source = prepare_source(self._source, self._origin, self._root)
        units = divide_ranges(reading.ranges, place.runner.parallel_units)
        fetcher = MessageFetcher(source, reading.ids, place.scratch, self._quarantine_output)
        results = place.runner.run(
            fetcher,
            units,
            lambda done, total: place.report_progress("reading messages on executors", done, total),
        )
        lost = Counter[PartitionId]()
        for result in results:
            reading.bad_messages.add_facts(result.bad)
            lost.update(result.lost)
        reading.expired.add_lost(lost)
        reading.check()
        parts = tuple(part for result in results for part in result.parts)
        oldest_ms = min((result.oldest_ms for result in results if result.oldest_ms is not None), default=None)
        fetched = replace(reading.build_result(changes, oldest_ms), shared_parts=parts)
        return fetched if parts or state is not None else self._add_empty_part(fetched, place, reading)

    def _add_empty_part(self, fetched: FetchedRows, place: FetchPlace, reading: "_Reading") -> FetchedRows:
        """Return fetched rows with a file that gives a new table its columns, if the format needs it."""
        with place.scratch.open_folder() as folder:
            factory = build_writer_factory(self._source, self._origin, self._root, folder.path, reading.bad_messages)
            return replace(fetched, shared_parts=folder.share_files(factory.write_empty_part()))

    def _estimate_bytes(self, plan: OffsetPlan) -> int:
        """Return about how many bytes there are; messages are sampled again only if that costs little in comparison."""
        if self._message_bytes is None or plan.count >= _SAMPLED_FROM:
            self._message_bytes = sample_message_bytes(self._client, plan.spans)
        return plan.count * self._message_bytes

    def _begin_reading(self, changes: FeedChanges) -> "_Reading":
        assert changes.until is not None
        ranges = tuple(OffsetRange(*values) for values in changes.until["spans"])
        ids = changes.until["after"]["ids"]
        lost_before = {(topic, number): count for topic, number, count in changes.until["lost"]}
        expired = ExpiredMessages(self._source, self._origin, self._client, ids, lost_before)
        return _Reading(ranges, ids, BadMessages(self._source, self._quarantine_output), expired)

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
