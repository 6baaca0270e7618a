"""Write messages to a topic: each once, in order, and all of them or an error."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from runnel.connect.kafka.client import Client
from runnel.declare.model.endpoints import Kafka
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_SEND_SECONDS = 60
_LARGEST = 100_000_000
_OURS = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")


@dataclass(frozen=True)
class Out:
    """A message to write. The key decides on its partition; a value of None marks the key as deleted."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class Producer:
    """An idempotent producer: a message that has to be sent again is in the topic once, and order stays.

    That holds for one producer. Whoever may be killed and start over sends headers by which readers know what they
    have already. Leave it with an error, and what was not sent yet is dropped.
    """

    def __init__(self, origin: Kafka, at: str | None = None) -> None:
        import confluent_kafka

        self._topic = origin.topics[0]
        self._client = Client(origin, at)
        settings = {
            "linger.ms": 20,
            "compression.type": "zstd",
            "message.max.bytes": _LARGEST,
            "message.timeout.ms": _SEND_SECONDS * 1000,
            **self._client.settings(enable_idempotence=True),
        }
        self._failed: KafkaError | None = None
        self._producer = self._client.made(confluent_kafka.Producer, settings)
        self._client.metadata(self._producer)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush()
        else:
            self._producer.purge()
            self._producer.poll(0)

    def send(self, messages: Iterable[Out]) -> int:
        """Hand messages over, and return how many; they may wait to be sent until `flush`."""
        count = 0
        for one in messages:
            self._hand(one)
            count += 1
        self._producer.poll(0)
        self._raise()
        return count

    def flush(self) -> None:
        """Wait until Kafka has everything; raise where it has not."""
        left = self._producer.flush(_SEND_SECONDS + 5)
        self._raise()
        if left:
            raise self._client.told(self._client.last)

    def _hand(self, one: Out) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, one.value, one.key, headers=list(one.headers) or None, on_delivery=self._delivered
                )
                return
            except BufferError:
                self._producer.poll(0.1)
                self._raise()
            except Exception as error:
                raise self._told(getattr(error, "args", (None,))[0], error) from None

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None and self._failed is None and error.name() not in _OURS:
            self._failed = error

    def _raise(self) -> None:
        if self._failed is not None:
            raise self._told(self._failed, None)

    def _told(self, error: object, raised: BaseException | None) -> RunnelError:
        from confluent_kafka import KafkaError

        if not isinstance(error, KafkaError):
            what = self._client.scrubbed(str(raised))
        elif error.name() in ("MSG_SIZE_TOO_LARGE", "_MSG_SIZE_TOO_LARGE"):
            what = "a message is larger than the topic takes; its max.message.bytes says how large one may be"
        elif error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "TOPIC_EXCEPTION"):
            what = "there is no such topic, and this user can't make it"
        elif error.retriable() or error.name() in ("_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT"):
            return self._client.told(self._client.last or error)
        elif "AUTH" in error.name():
            return self._client.told(error)
        else:
            what = self._client.scrubbed(error.str())
        fix = "look at the topic's settings, and run it again: what was sent is sent again"
        return RunnelError(
            "KAFKA_WRITE", f"the topic `{self._topic}` took not all: {what}", at=self._client.at, fix=fix
        )
