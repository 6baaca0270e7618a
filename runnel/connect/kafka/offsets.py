"""Fetch the topics of an origin from Kafka, with the first and last offset of each partition."""

import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from runnel.connect.kafka.client import REQUEST_SECONDS, KafkaClient
from runnel.declare.model.endpoints import Kafka
from runnel.errors import Mistake, Unreachable, did_you_mean, join_names

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

PartitionId = tuple[str, int]  # topic, partition
_LATEST, _EARLIEST = -1, -2  # Kafka's own numbers, in the place of a time
_PAUSE_SECONDS = 0.1
_ELECTING = ("UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE")


class _NoLeader(Exception):
    """The brokers are electing the leader of a partition."""


@dataclass(frozen=True)
class TopicOffsets:
    """Topics at one moment. `ids` are Kafka's own: a recreated topic has another id with the same name.

    `low` is the first offset that still exists, `high` the one after the last that may be read.
    """

    cluster: str
    ids: Mapping[str, str]
    low: Mapping[PartitionId, int]
    high: Mapping[PartitionId, int]

    def partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions."""
        return sorted(number for name, number in self.high if name == topic)


def fetch_topic_offsets(client: KafkaClient, admin: "AdminClient", origin: Kafka) -> TopicOffsets:
    """Fetch the ids and offsets of the topics of an origin."""
    metadata = client.fetch_metadata(admin)
    names = _select_topics(origin, sorted(metadata.topics), client)
    partition_ids = [(name, number) for name in names for number in sorted(metadata.topics[name].partitions)]
    low = _fetch_offsets(client, admin, partition_ids, _EARLIEST)
    high = _fetch_offsets(client, admin, partition_ids, _LATEST)
    return TopicOffsets(str(metadata.cluster_id or ""), fetch_topic_ids(client, admin, names), low, high)


def fetch_offsets_at_time(
    client: KafkaClient, admin: "AdminClient", partition_ids: Iterable[PartitionId], start_time: str
) -> dict[PartitionId, int]:
    """Return the first offset of each partition whose message is not older than a time; -1 if there is none."""
    milliseconds = round(datetime.fromisoformat(start_time).timestamp() * 1000)
    return _fetch_offsets(client, admin, partition_ids, max(milliseconds, 0))


def _fetch_offsets(
    client: KafkaClient, admin: "AdminClient", partition_ids: Iterable[PartitionId], timestamp: int
) -> dict[PartitionId, int]:
    """Return an offset of each partition, counting only messages of finished transactions."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    spec: Any = OffsetSpec
    offset_specs = {TopicPartition(*partition_id): spec(timestamp) for partition_id in partition_ids}
    if not offset_specs:
        return {}
    deadline = time.monotonic() + REQUEST_SECONDS
    while True:
        options = {"isolation_level": IsolationLevel.READ_COMMITTED, "request_timeout": REQUEST_SECONDS}
        futures = admin.list_offsets(offset_specs, **options)
        try:
            return {
                (partition_id.topic, partition_id.partition): _wait_for_result(
                    client, partition_id.topic, future
                ).offset
                for partition_id, future in futures.items()
            }
        except _NoLeader as error:
            if time.monotonic() > deadline:
                raise client.translate_error(error.args[0]) from None
            time.sleep(_PAUSE_SECONDS)


def fetch_topic_ids(client: KafkaClient, admin: "AdminClient", names: list[str]) -> dict[str, str]:
    """Return Kafka's own ids of topics."""
    from confluent_kafka import TopicCollection

    if not names:
        return {}
    futures = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_SECONDS)
    return {name: str(_wait_for_result(client, name, future).topic_id) for name, future in futures.items()}


def topic_deleted_error(client: KafkaClient, topic: str) -> Mistake:
    """Return the error of a topic that was deleted a moment ago."""
    what = f"the topic `{topic}` was deleted from Kafka at {client.servers} just now"
    return Mistake("SOURCE_KAFKA_TOPIC", what, at=client.at, fix="create it again, or remove it from rn.kafka")


def _wait_for_result(client: KafkaClient, topic: str, future: "Future[Any]") -> Any:
    from confluent_kafka import KafkaException

    try:
        return future.result(REQUEST_SECONDS + 1)
    except KafkaException as error:
        if error.args[0].name() in _ELECTING:
            raise _NoLeader(error.args[0]) from None
        if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
            raise client.translate_error(error.args[0]) from None
        raise topic_deleted_error(client, topic) from None
    except Late:
        raise Unreachable("KAFKA_UNREACHABLE", f"Kafka at {client.servers} does not answer", at=client.at) from None


def _select_topics(origin: Kafka, existing: list[str], client: KafkaClient) -> list[str]:
    """Return the topics that an origin names, or raise if one does not exist."""
    visible = [name for name in existing if not name.startswith("__")]
    if origin.pattern is not None:
        pattern = re.compile(origin.pattern)
        matching = [name for name in visible if pattern.fullmatch(name)]
        if not matching:
            what = f"no topic of Kafka at {client.servers} matches the pattern {origin.pattern!r}"
            raise Mistake("SOURCE_KAFKA_TOPIC", what, at=client.at, fix=_suggest_topics(visible))
        return matching
    missing = [name for name in origin.topics if name not in existing]
    if missing:
        what = f"Kafka at {client.servers} has no topic {join_names(missing)}" + did_you_mean(missing[0], visible)
        raise Mistake("SOURCE_KAFKA_TOPIC", what, at=client.at, fix=_suggest_topics(visible))
    return list(origin.topics)


def _suggest_topics(visible: list[str]) -> str:
    if not visible:
        return "create it, or give this user access: the user can see no topic"
    return f"correct its name, or create it; there are {join_names(visible, 8)}"
