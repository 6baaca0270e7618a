"""Handle messages that Kafka no longer has: they expired since they were announced, or the topic was recreated."""

import hashlib
from collections.abc import Mapping

from runnel.connect.kafka.client import KafkaClient
from runnel.connect.kafka.offset_plan import describe_expired, refuse_expired, refuse_recreated
from runnel.connect.kafka.offset_range import OffsetRange
from runnel.connect.kafka.offsets import (
    PartitionId,
    TopicOffsets,
    fetch_topic_ids,
    fetch_topic_offsets,
    topic_deleted_error,
)
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Source


class ExpiredMessages:
    """Counts expired messages. `ids` are those of the announced topics, `lost_before` what had expired before then.

    `lost_since` are the messages of each partition that expired since.
    """

    def __init__(
        self,
        source: Source,
        origin: Kafka,
        client: KafkaClient,
        ids: Mapping[str, str],
        lost_before: Mapping[PartitionId, int],
    ) -> None:
        self._source = source
        self._origin = origin
        self._client = client
        self._ids = ids
        self._lost_before = lost_before
        self.lost_since: dict[PartitionId, int] = {}

    def find_next_offset(self, span: OffsetRange, offset: int) -> int:
        """Return where to continue in a span whose `offset` does not exist; raises if messages must not be skipped."""
        partition_id = (span.topic, span.partition)
        topic_offsets = fetch_topic_offsets(self._client, self._client.create_admin(), self._origin)
        read_state = {"offsets": {span.topic: {str(span.partition): offset}}, "ids": self._ids}
        refuse_recreated(self._source, read_state, topic_offsets)
        if partition_id not in topic_offsets.low:
            raise topic_deleted_error(self._client, span.topic)
        low = min(topic_offsets.low[partition_id], span.end)
        if low > offset:
            self.add_lost({partition_id: low - offset})
        return max(offset, low)

    def add_lost(self, lost: Mapping[PartitionId, int]) -> None:
        """Count messages of partitions as expired; raises if they must not be skipped."""
        for partition_id, count in lost.items():
            self.lost_since[partition_id] = self.lost_since.get(partition_id, 0) + count
        refuse_expired(self._source, self._origin, self.lost_since)

    def refuse_recreated_topics(self, topics: set[str]) -> None:
        """Raise if topics were recreated since they were announced: then other messages were read."""
        topic_offsets = TopicOffsets(
            "", fetch_topic_ids(self._client, self._client.create_admin(), sorted(topics)), {}, {}
        )
        refuse_recreated(self._source, {"offsets": {topic: {} for topic in topics}, "ids": self._ids}, topic_offsets)

    def identity(self, announced: str) -> str:
        """Return the id of the rows: the announced one, changed if messages expired since."""
        if not self.lost_since:
            return announced
        return f"{announced}:{hashlib.sha256(repr(sorted(self.lost_since.items())).encode()).hexdigest()[:16]}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a warning if messages expired."""
        partition_ids = sorted({*self._lost_before, *self.lost_since})
        lost = {
            partition_id: self._lost_before.get(partition_id, 0) + self.lost_since.get(partition_id, 0)
            for partition_id in partition_ids
        }
        return (describe_expired(lost),) if lost else ()
