"""Plan which offsets to read since a state, and the state afterwards.

Pure: the caller passes in the offsets that Kafka has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runnel.connect.feed.protocol import FeedState
from runnel.connect.kafka.offset_range import OffsetRange
from runnel.connect.kafka.offsets import PartitionId, TopicOffsets
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Source
from runnel.errors import RunnelError, plural

_MAX_LISTED = 5


@dataclass(frozen=True)
class OffsetPlan:
    """The spans to read, none of them empty, the state afterwards, and how many messages of each partition are lost."""

    spans: tuple[OffsetRange, ...]
    after: dict[str, Any]
    lost: Mapping[PartitionId, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return how many offsets there are to read."""
        return sum(span.count for span in self.spans)

    def limit_to(self, max_offsets: int | None) -> "OffsetPlan":
        """Return a plan of about `max_offsets` offsets; the others are left for the next run."""
        if max_offsets is None or self.count <= max_offsets:
            return self
        offsets_per_span = max(max_offsets // len(self.spans), 1)
        spans = tuple(replace(span, end=min(span.end, span.start + offsets_per_span)) for span in self.spans)
        offsets = {topic: dict(partitions) for topic, partitions in self.after["offsets"].items()}
        for span in spans:
            offsets[span.topic][str(span.partition)] = span.end
        return replace(self, spans=spans, after={**self.after, "offsets": offsets})


def offsets_in_state(state: FeedState | None) -> dict[str, dict[str, int]]:
    """Return the offsets of a state, by topic and partition."""
    return dict((state or {}).get("offsets", {}))


def plan_offsets(state: FeedState | None, topic_offsets: TopicOffsets, starts: Mapping[PartitionId, int]) -> OffsetPlan:
    """Plan the offsets to read; `starts` are the first offsets of topics that are not in the state."""
    previous = offsets_in_state(state)
    spans, lost, new_offsets = [], {}, {topic: dict(partitions) for topic, partitions in previous.items()}
    for partition_id, high in sorted(topic_offsets.high.items()):
        topic, partition = partition_id
        low = topic_offsets.low[partition_id]
        start = previous[topic].get(str(partition), low) if topic in previous else starts[partition_id]
        if start < low:
            lost[partition_id] = low - start
        span = OffsetRange(topic, partition, max(start, low), high)
        new_offsets.setdefault(topic, {})[str(partition)] = span.end
        if span.count:
            spans.append(span)
    ids = {**(state or {}).get("ids", {}), **topic_offsets.ids}
    return OffsetPlan(tuple(spans), {"offsets": new_offsets, "ids": ids}, lost)


def refuse_recreated(source: Source, state: FeedState | None, topic_offsets: TopicOffsets) -> None:
    """Raise if a topic was recreated since it was read: its offsets now mean other messages."""
    ids: Mapping[str, str] = (state or {}).get("ids", {})
    for topic, partitions in offsets_in_state(state).items():
        behind = [
            f"{topic}[{number}] ends at {topic_offsets.high[topic, int(number)]:,}, but was read up to {offset:,}"
            for number, offset in partitions.items()
            if (topic, int(number)) in topic_offsets.high and topic_offsets.high[topic, int(number)] < offset
        ]
        has_new_id = topic in topic_offsets.ids and ids.get(topic, topic_offsets.ids[topic]) != topic_offsets.ids[topic]
        if behind or has_new_id:
            reason = f": {'; '.join(behind[:_MAX_LISTED])}" if behind else ", so its offsets mean other messages now"
            what = f"the topic `{topic}` was deleted and created again since it was read{reason}"
            fix = (
                f"runnel rewind {source.table} --to REF, a commit before its first load, reads the new topic from its "
                "beginning without the old rows; or declare another table for it"
            )
            raise RunnelError("SOURCE_KAFKA_RESET", what, at=str(source.place), fix=fix)


def refuse_expired(source: Source, origin: Kafka, lost: Mapping[PartitionId, int]) -> None:
    """Raise if messages expired before they were read, unless the source declares `expired="skip"`."""
    if not lost or origin.expired == "skip":
        return
    fix = (
        'continue with the messages that are left: rn.kafka(..., expired="skip"); or start over: '
        f"runnel rewind {source.table} --to REF, a commit before its first load, reads all that is still there"
    )
    raise RunnelError("SOURCE_KAFKA_EXPIRED", f"{describe_expired(lost)}", at=str(source.place), fix=fix)


def describe_expired(lost: Mapping[PartitionId, int]) -> str:
    """Return a sentence that says how many messages of which partitions expired.

    >>> describe_expired({("clicks", 0): 1200})
    '1,200 messages expired before they were read: clicks[0] lacks 1,200'
    """
    count = sum(lost.values())
    phrases = [f"{topic}[{number}] lacks {missing_count:,}" for (topic, number), missing_count in lost.items()]
    more = f" and {len(phrases) - _MAX_LISTED} more partitions" if len(phrases) > _MAX_LISTED else ""
    return f"{plural(count, 'message')} expired before they were read: {', '.join(phrases[:_MAX_LISTED])}{more}"


def describe_plan(plan: OffsetPlan, topic_offsets: TopicOffsets) -> str:
    """Return a summary of the plan for people."""
    topics = list(dict.fromkeys(span.topic for span in plan.spans))
    if not topics:
        text = f"nothing to read in {_join_topics(sorted(topic_offsets.ids))} yet"
    else:
        parts = plural(len(plan.spans), "partition")
        text = f"{plural(plan.count, 'new message')} in {parts} of {_join_topics(topics)}"
    return f"{text}; {describe_expired(plan.lost)}" if plan.lost else text


def _join_topics(topics: list[str]) -> str:
    return ", ".join(topics) if len(topics) <= 3 else f"{len(topics)} topics"
