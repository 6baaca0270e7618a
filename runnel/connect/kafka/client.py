"""How Kafka is reached: the settings of a client, and what its errors mean to people. No secret is ever told."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.secret import Secret, revealed
from runnel.errors import Mistake, RunnelError, Unreachable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata

REQUEST_SECONDS = 10.0
_REACH_SECONDS = 6.0
_DOWN_SECONDS = 1.5  # for how long nobody may answer before all are taken to be down
_LARGEST_ANSWER = 1_000_000_000
_REFUSED = (
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "_AUTHENTICATION",
)
# How much the client reads ahead: what it takes of memory, and more where messages are packed well.
_AHEAD = {
    "fetch.max.bytes": 8_000_000,
    "fetch.message.max.bytes": 1_000_000,  # of each partition
    "queued.max.messages.kbytes": 32_000,
    "queued.min.messages": 20_000,
    "fetch.queue.backoff.ms": 20,
}
# How soon a server is tried again that did not answer. The client's own 10 seconds are long for one that is back.
_AGAIN = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 1000}
_UNTRUSTED = "certificate verify failed"


class Client:
    """The way to the servers of an origin. `at` is the place in the user's file that errors name."""

    def __init__(self, origin: Kafka, at: str | None) -> None:
        self.servers = origin.servers
        self.at = at
        self._options = {name: revealed(value, at) for name, value in origin.options}
        self._hidden = [self._options[name] for name, value in origin.options if isinstance(value, Secret)]
        self._last: KafkaError | None = None
        self._are_down = False

    def settings(self, **own: Any) -> dict[str, Any]:
        """Return the settings of a client; names have `_` for `.`."""
        return {
            "client.id": "runnel",
            "socket.keepalive.enable": True,
            "log_level": 0,
            **_AGAIN,
            **self._options,
            "bootstrap.servers": self.servers,
            "error_cb": self.note,
            **{name.replace("_", "."): value for name, value in own.items()},
        }

    def admin(self) -> "AdminClient":
        """Return a client that asks."""
        from confluent_kafka.admin import AdminClient

        made: AdminClient = self.made(AdminClient, self.settings())
        return made

    def consumer(self) -> "Consumer":
        """Return a client that reads what it is told to, and leaves no trace in a group."""
        from confluent_kafka import Consumer

        made: Consumer = self.made(
            Consumer,
            {
                "group.id": "runnel",
                **_AHEAD,
                "fetch.wait.max.ms": 100,  # after this it is told that a partition ends
                "check.crcs": True,
                "topic.metadata.propagation.max.ms": 5000,  # the topics are known to be there: one that is not is gone
                **self.settings(
                    enable_auto_commit=False,
                    enable_auto_offset_store=False,
                    enable_partition_eof=True,
                    auto_offset_reset="error",
                    isolation_level="read_committed",
                    receive_message_max_bytes=_LARGEST_ANSWER,
                ),
            },
        )
        return made

    def made(self, kind: Any, settings: dict[str, Any]) -> Any:
        """Return a client of a kind, or raise where an option is wrong."""
        from confluent_kafka import KafkaException

        try:
            return kind(settings)
        except (KafkaException, ValueError, TypeError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            what = f"Kafka's client can't be made: {self.scrubbed(text)}"
            raise Mistake("KAFKA_OPTIONS", what, at=self.at, fix="correct options= of rn.kafka") from None

    def metadata(self, admin: "AdminClient") -> "ClusterMetadata":
        """Return all topics. Raises within seconds where nobody answers."""
        from confluent_kafka import KafkaException

        began = time.monotonic()
        while True:
            with suppress(KafkaException):
                return admin.list_topics(timeout=0.5)
            admin.poll(0)
            waited = time.monotonic() - began
            last = self._last
            is_down = self._are_down and waited > _DOWN_SECONDS
            if is_down or waited > _REACH_SECONDS or (last is not None and _is_final(last)):
                raise self.told(last)

    def told(self, error: "KafkaError | None") -> RunnelError:
        """Return what an error of Kafka means."""
        if error is not None and error.name() in _REFUSED:
            what = f"Kafka at {self.servers} refuses us: {self.scrubbed(error.str())}"
            fix = "look at options= of rn.kafka: the user, the password, and what this user may read and write"
            return Mistake("KAFKA_REFUSED", what, at=self.at, fix=fix)
        if error is not None and _UNTRUSTED in error.str():
            what = f"the certificate of Kafka at {self.servers} is not trusted, or is for another host"
            fix = 'name its authority: options={"ssl.ca.location": "/path/of/ca.pem"}; see that servers= has its name'
            return RunnelError("KAFKA_UNTRUSTED", what, at=self.at, fix=fix)
        why = " in time"
        if error is not None and error.name() != "_ALL_BROKERS_DOWN":  # which says only how many are
            why = f": {self.scrubbed(error.str()).partition(' (after ')[0]}"
        what = f"Kafka at {self.servers} does not answer{why}"
        fix = "look whether it runs, and whether servers= and the security.protocol of options= fit"
        return Unreachable("KAFKA_UNREACHABLE", what, at=self.at, fix=fix)

    def scrubbed(self, text: str) -> str:
        """Return a text without secrets."""
        for hidden in sorted(filter(None, self._hidden), key=len, reverse=True):
            text = text.replace(hidden, "***")
        return text

    @property
    def last(self) -> "KafkaError | None":
        """Return the last error that came by itself."""
        return self._last

    def calm(self) -> None:
        """Forget what went wrong: it has passed."""
        self._last, self._are_down = None, False

    def note(self, error: "KafkaError") -> None:
        """Remember what went wrong by itself; what tells more stays."""
        self._are_down |= error.name() == "_ALL_BROKERS_DOWN"
        # What a server answered tells more than that it does not, and that more than how many do not.
        is_less = error.name() == "_ALL_BROKERS_DOWN" or (self._last is not None and _is_final(self._last))
        if self._last is None or not is_less:
            self._last = error


def _is_final(error: "KafkaError") -> bool:
    """Tell whether an error will not pass by itself."""
    return error.name() in _REFUSED or _UNTRUSTED in error.str()
