"""Deliver a table to a Kafka topic: a message for each added row, and a tombstone for each removed key.

Headers carry the commit of a message, and a key that is the same if the message is sent again.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from runnel.connect.kafka.producer import OutgoingMessage, Producer
from runnel.connect.sinks import failpoints
from runnel.connect.sinks.json_rows import encode_json
from runnel.connect.sinks.sink_target import StatelessSink, check_sink_columns
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Sink

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import OutgoingChange

KEY_HEADER, COMMIT_HEADER = "runnel-key", "runnel-commit"


class KafkaSink(StatelessSink):
    """A Kafka topic."""

    def __init__(self, sink: Sink, target: Kafka) -> None:
        self._sink = sink
        self._target = target

    def deliver(self, change: "OutgoingChange") -> int:
        """Send all messages of a change; it is delivered once Kafka has all of them."""
        check_sink_columns(self._sink, change, self._target.key)
        if not any(change.added_and_removed):
            return 0
        with ExitStack() as stack:
            producer = stack.enter_context(Producer(self._target, str(self._sink.place)))
            sent_count = producer.send(self._build_messages(change))
            failpoints.reach(failpoints.SENDING)
            producer.flush()
        return sent_count

    def _build_messages(self, change: "OutgoingChange") -> Iterator[OutgoingMessage]:
        """Yield added rows, then removed keys, always in the same order."""
        order = ", ".join(column.key_expression for column in change.columns)
        number = 0
        for number, row in enumerate(_read_rows(change, f"FROM {change.added_view()} ORDER BY {order}"), 1):
            yield OutgoingMessage(encode_json(row).encode(), self._encode_key(row), self._build_headers(change, number))
        if self._target.key and change.added_and_removed[1]:
            removed_keys = f"FROM ({change.removed_keys_sql(self._target.key)}) ORDER BY ALL"
            for deletion_number, row in enumerate(_read_rows(change, removed_keys), number + 1):
                yield OutgoingMessage(None, self._encode_key(row), self._build_headers(change, deletion_number))

    def _encode_key(self, row: dict[str, Any]) -> bytes | None:
        if not self._target.key:
            return None
        return encode_json({name: row[name] for name in self._target.key}).encode()

    def _build_headers(self, change: "OutgoingChange", number: int) -> list[tuple[str, bytes]]:
        return [(COMMIT_HEADER, change.commit.encode()), (KEY_HEADER, f"{change.key}/{number}".encode())]


def _read_rows(change: "OutgoingChange", sql: str) -> Iterator[dict[str, Any]]:
    for batch in change.open_reader(sql):
        yield from batch.to_pylist()
