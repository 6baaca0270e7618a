"""What Kafka has: the topics of an origin with their partitions, and from where to where each of these reaches."""

import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from runnel.connect.kafka.client import REQUEST_SECONDS, Client
from runnel.declare.model.endpoints import Kafka
from runnel.errors import Mistake, Unreachable, listed, nearest

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Place = tuple[str, int]  # topic, partition
_LATEST, _EARLIEST = -1, -2  # Kafka's own numbers, in the place of a time
_PAUSE_SECONDS = 0.1
_ELECTING = ("UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH", "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE")


class _Leaderless(Exception):
    """The servers are about to agree on who leads a partition."""


@dataclass(frozen=True)
class Topics:
    """Topics at one moment. `ids` are Kafka's own: a topic that was made anew has another, though its name is the same.

    `low` is the first offset that is still there, `high` the one after the last that may be read.
    """

    cluster: str
    ids: Mapping[str, str]
    low: Mapping[Place, int]
    high: Mapping[Place, int]

    def partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions."""
        return sorted(number for name, number in self.high if name == topic)


def look(client: Client, admin: "AdminClient", origin: Kafka) -> Topics:
    """Ask for all that there is to know about the topics of an origin."""
    metadata = client.metadata(admin)
    names = _chosen(origin, sorted(metadata.topics), client)
    places = [(name, number) for name in names for number in sorted(metadata.topics[name].partitions)]
    low = _offsets(client, admin, places, _EARLIEST)
    high = _offsets(client, admin, places, _LATEST)
    return Topics(str(metadata.cluster_id or ""), ids_of(client, admin, names), low, high)


def at_time(client: Client, admin: "AdminClient", places: Iterable[Place], time: str) -> dict[Place, int]:
    """Return the first offset of each partition whose message is not older than a time; -1 where there is none."""
    milliseconds = round(datetime.fromisoformat(time).timestamp() * 1000)
    return _offsets(client, admin, places, max(milliseconds, 0))


def _offsets(client: Client, admin: "AdminClient", places: Iterable[Place], when: int) -> dict[Place, int]:
    """Return an offset of each partition, of messages whose transactions are finished."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    spec: Any = OffsetSpec
    wanted = {TopicPartition(*place): spec(when) for place in places}
    if not wanted:
        return {}
    until = time.monotonic() + REQUEST_SECONDS
    while True:
        options = {"isolation_level": IsolationLevel.READ_COMMITTED, "request_timeout": REQUEST_SECONDS}
        asked = admin.list_offsets(wanted, **options)
        try:
            return {
                (place.topic, place.partition): _answer(client, place.topic, future).offset
                for place, future in asked.items()
            }
        except _Leaderless as error:
            if time.monotonic() > until:
                raise client.told(error.args[0]) from None
            time.sleep(_PAUSE_SECONDS)


def ids_of(client: Client, admin: "AdminClient", names: list[str]) -> dict[str, str]:
    """Return Kafka's own ids of topics."""
    from confluent_kafka import TopicCollection

    if not names:
        return {}
    asked = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_SECONDS)
    return {name: str(_answer(client, name, future).topic_id) for name, future in asked.items()}


def gone(client: Client, topic: str) -> Mistake:
    """Return that a topic was there a moment ago, and no longer is."""
    what = f"the topic `{topic}` was deleted from Kafka at {client.servers} just now"
    return Mistake("SOURCE_KAFKA_TOPIC", what, at=client.at, fix="make it again, or take it out of rn.kafka")


def _answer(client: Client, topic: str, future: "Future[Any]") -> Any:
    from confluent_kafka import KafkaException

    try:
        return future.result(REQUEST_SECONDS + 1)
    except KafkaException as error:
        if error.args[0].name() in _ELECTING:
            raise _Leaderless(error.args[0]) from None
        if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
            raise client.told(error.args[0]) from None
        raise gone(client, topic) from None
    except Late:
        raise Unreachable("KAFKA_UNREACHABLE", f"Kafka at {client.servers} does not answer", at=client.at) from None


def _chosen(origin: Kafka, there: list[str], client: Client) -> list[str]:
    """Return the topics that an origin names, or raise where one does not exist."""
    known = [name for name in there if not name.startswith("__")]
    if origin.pattern is not None:
        fits = re.compile(origin.pattern)
        found = [name for name in known if fits.fullmatch(name)]
        if not found:
            what = f"no topic of Kafka at {client.servers} fits the pattern {origin.pattern!r}"
            raise Mistake("SOURCE_KAFKA_TOPIC", what, at=client.at, fix=_there(known))
        return found
    missing = [name for name in origin.topics if name not in there]
    if missing:
        close = nearest(missing[0], known)
        what = f"Kafka at {client.servers} has no topic {listed(missing)}" + (f"; close: `{close}`" if close else "")
        raise Mistake("SOURCE_KAFKA_TOPIC", what, at=client.at, fix=_there(known))
    return list(origin.topics)


def _there(known: list[str]) -> str:
    if not known:
        return "make it, or let this user see it: there is none that it may see"
    return f"correct its name, or make it; there are {listed(known, 8)}"
