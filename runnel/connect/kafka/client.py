"""Connect to Kafka: the settings of clients, and errors for users. Messages never contain a secret."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.secret import Secret, reveal_if_secret
from runnel.errors import Mistake, RunnelError, Unreachable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata

REQUEST_SECONDS = 10.0
_CONNECT_SECONDS = 6.0
_DOWN_SECONDS = 1.5  # after this long without an answer all brokers count as down
_MAX_RESPONSE_BYTES = 1_000_000_000
_AUTHORIZATION_ERRORS = (
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "_AUTHENTICATION",
)
# How much the client reads ahead: this much memory, and more if messages are compressed well.
_READ_AHEAD = {
    "fetch.max.bytes": 8_000_000,
    "fetch.message.max.bytes": 1_000_000,  # of each partition
    "queued.max.messages.kbytes": 32_000,
    "queued.min.messages": 20_000,
    "fetch.queue.backoff.ms": 20,
}
# How soon the client reconnects to a broker. Its default of 10 seconds is long for a broker that is back.
_RECONNECT = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 1000}
_UNTRUSTED = "certificate verify failed"


class KafkaClient:
    """Creates clients for the servers of an origin. `at` is the place in the user's file that errors name."""

    def __init__(self, origin: Kafka, at: str | None) -> None:
        self.servers = origin.servers
        self.at = at
        self._options = {name: reveal_if_secret(value, at) for name, value in origin.options}
        self._secret_values = [self._options[name] for name, value in origin.options if isinstance(value, Secret)]
        self._last_error: KafkaError | None = None
        self._all_brokers_down = False

    def settings(self, **overrides: Any) -> dict[str, Any]:
        """Return the settings of a client; names of `overrides` have `_` instead of `.`."""
        return {
            "client.id": "runnel",
            "socket.keepalive.enable": True,
            "log_level": 0,
            **_RECONNECT,
            **self._options,
            "bootstrap.servers": self.servers,
            "error_cb": self.record_error,
            **{name.replace("_", "."): value for name, value in overrides.items()},
        }

    def create_admin(self) -> "AdminClient":
        """Return an admin client, for queries."""
        from confluent_kafka.admin import AdminClient

        admin: AdminClient = self.create_client(AdminClient, self.settings())
        return admin

    def create_consumer(self) -> "Consumer":
        """Return a consumer that reads assigned offsets and commits nothing to its group."""
        from confluent_kafka import Consumer

        consumer: Consumer = self.create_client(
            Consumer,
            {
                "group.id": "runnel",
                **_READ_AHEAD,
                "fetch.wait.max.ms": 100,  # after this long the consumer reports the end of a partition
                "check.crcs": True,
                "topic.metadata.propagation.max.ms": 5000,  # the topics exist: a missing one was deleted
                **self.settings(
                    enable_auto_commit=False,
                    enable_auto_offset_store=False,
                    enable_partition_eof=True,
                    auto_offset_reset="error",
                    isolation_level="read_committed",
                    receive_message_max_bytes=_MAX_RESPONSE_BYTES,
                ),
            },
        )
        return consumer

    def create_client(self, client_class: Any, settings: dict[str, Any]) -> Any:
        """Return a client of a class of confluent_kafka, or raise if an option is wrong."""
        from confluent_kafka import KafkaException

        try:
            return client_class(settings)
        except (KafkaException, ValueError, TypeError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            what = f"Kafka's client can't be created: {self.hide_secrets(text)}"
            raise Mistake("KAFKA_OPTIONS", what, at=self.at, fix="correct options= of rn.kafka") from None

    def fetch_metadata(self, admin: "AdminClient") -> "ClusterMetadata":
        """Return the metadata of all topics. Raises within seconds if no broker answers."""
        from confluent_kafka import KafkaException

        started_at = time.monotonic()
        while True:
            with suppress(KafkaException):
                return admin.list_topics(timeout=0.5)
            admin.poll(0)
            waited_seconds = time.monotonic() - started_at
            last_error = self._last_error
            is_down = self._all_brokers_down and waited_seconds > _DOWN_SECONDS
            if is_down or waited_seconds > _CONNECT_SECONDS or (last_error is not None and _is_permanent(last_error)):
                raise self.translate_error(last_error)

    def translate_error(self, error: "KafkaError | None") -> RunnelError:
        """Return the error for users that corresponds to a Kafka error."""
        if error is not None and error.name() in _AUTHORIZATION_ERRORS:
            what = f"Kafka at {self.servers} refuses access: {self.hide_secrets(error.str())}"
            fix = "check options= of rn.kafka: the user, the password, and what this user may read and write"
            return Mistake("KAFKA_REFUSED", what, at=self.at, fix=fix)
        if error is not None and _UNTRUSTED in error.str():
            what = f"the certificate of Kafka at {self.servers} is not trusted, or is for another host"
            fix = 'name its authority: options={"ssl.ca.location": "/path/of/ca.pem"}; check that servers= has its name'
            return RunnelError("KAFKA_UNTRUSTED", what, at=self.at, fix=fix)
        reason = " in time"
        if error is not None and error.name() != "_ALL_BROKERS_DOWN":  # whose text only says how many brokers are down
            reason = f": {self.hide_secrets(error.str()).partition(' (after ')[0]}"
        what = f"Kafka at {self.servers} does not answer{reason}"
        fix = "check that it is running, and that servers= and the security.protocol of options= are right"
        return Unreachable("KAFKA_UNREACHABLE", what, at=self.at, fix=fix)

    def hide_secrets(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in sorted(filter(None, self._secret_values), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    @property
    def last_error(self) -> "KafkaError | None":
        """Return the last error that the client reported in the background."""
        return self._last_error

    def clear_errors(self) -> None:
        """Forget recorded errors, once the client has made progress again."""
        self._last_error, self._all_brokers_down = None, False

    def record_error(self, error: "KafkaError") -> None:
        """Remember an error of the client's background thread, unless a more specific one is known."""
        self._all_brokers_down |= error.name() == "_ALL_BROKERS_DOWN"
        # A broker's answer says more than a lost connection, and that more than the number of brokers down.
        is_less_specific = error.name() == "_ALL_BROKERS_DOWN" or (
            self._last_error is not None and _is_permanent(self._last_error)
        )
        if self._last_error is None or not is_less_specific:
            self._last_error = error


def _is_permanent(error: "KafkaError") -> bool:
    """Tell whether an error does not go away by itself."""
    return error.name() in _AUTHORIZATION_ERRORS or _UNTRUSTED in error.str()
