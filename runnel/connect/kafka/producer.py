"""Write messages to a topic: each once and in order; raise if not all were written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from runnel.connect.kafka.client import KafkaClient
from runnel.declare.model.endpoints import Kafka
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_SEND_SECONDS = 60
_MAX_MESSAGE_BYTES = 100_000_000
_PURGE_ERRORS = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")


@dataclass(frozen=True)
class OutgoingMessage:
    """A message to write. The key decides on its partition; a value of None marks the key as deleted."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class Producer:
    """An idempotent producer: a message that is sent again is in the topic once, and the order is kept.

    That holds for one producer. A caller that may be killed and start over must send headers by which readers recognize
    repeated messages. If the context is left with an exception, unsent messages are dropped.
    """

    def __init__(self, origin: Kafka, at: str | None = None) -> None:
        import confluent_kafka

        self._topic = origin.topics[0]
        self._client = KafkaClient(origin, at)
        settings = {
            "linger.ms": 20,
            "compression.type": "zstd",
            "message.max.bytes": _MAX_MESSAGE_BYTES,
            "message.timeout.ms": _SEND_SECONDS * 1000,
            **self._client.settings(enable_idempotence=True),
        }
        self._delivery_error: KafkaError | None = None
        self._producer = self._client.create_client(confluent_kafka.Producer, settings)
        self._client.fetch_metadata(self._producer)

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

    def send(self, messages: Iterable[OutgoingMessage]) -> int:
        """Queue messages and return how many; they may not be sent before `flush`."""
        count = 0
        for message in messages:
            self._produce(message)
            count += 1
        self._producer.poll(0)
        self._raise_if_failed()
        return count

    def flush(self) -> None:
        """Wait until Kafka has all messages; raise if it does not get them."""
        unsent = self._producer.flush(_SEND_SECONDS + 5)
        self._raise_if_failed()
        if unsent:
            raise self._client.translate_error(self._client.last_error)

    def _produce(self, message: OutgoingMessage) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    message.value,
                    message.key,
                    headers=list(message.headers) or None,
                    on_delivery=self._record_delivery,
                )
                return
            except BufferError:
                self._producer.poll(0.1)
                self._raise_if_failed()
            except Exception as error:
                raise self._translate_error(getattr(error, "args", (None,))[0], error) from None

    def _record_delivery(self, error: "KafkaError | None", _message: "Message") -> None:
        if error is not None and self._delivery_error is None and error.name() not in _PURGE_ERRORS:
            self._delivery_error = error

    def _raise_if_failed(self) -> None:
        if self._delivery_error is not None:
            raise self._translate_error(self._delivery_error, None)

    def _translate_error(self, error: object, raised: BaseException | None) -> RunnelError:
        from confluent_kafka import KafkaError

        if not isinstance(error, KafkaError):
            what = self._client.hide_secrets(str(raised))
        elif error.name() in ("MSG_SIZE_TOO_LARGE", "_MSG_SIZE_TOO_LARGE"):
            what = "a message is larger than max.message.bytes of the topic"
        elif error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "TOPIC_EXCEPTION"):
            what = "there is no such topic, and this user can't create it"
        elif error.retriable() or error.name() in ("_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT"):
            return self._client.translate_error(self._client.last_error or error)
        elif "AUTH" in error.name():
            return self._client.translate_error(error)
        else:
            what = self._client.hide_secrets(error.str())
        fix = "check the topic's settings, and run it again: all messages are sent again"
        return RunnelError(
            "KAFKA_WRITE", f"the topic `{self._topic}` did not accept all messages: {what}", at=self._client.at, fix=fix
        )
