"""A topic of Kafka as a sink: a message for each row that came, and an empty one for each key that went.

Headers say which commit a message is of, and a key that is the same when it is sent again.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from runnel.connect.kafka.producer import Out, Producer
from runnel.connect.sinks import failpoints
from runnel.connect.sinks.column_lookup import check_columns
from runnel.connect.sinks.json_rows import as_json
from runnel.connect.sinks.sink_target import Forgetful
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Sink

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import Change

KEY_HEADER, COMMIT_HEADER = "runnel-key", "runnel-commit"


class KafkaOutlet(Forgetful):
    """A topic."""

    def __init__(self, sink: Sink, target: Kafka) -> None:
        self._sink = sink
        self._target = target

    def take(self, change: "Change") -> int:
        """Send all messages of a change; it is taken once Kafka has every one of them."""
        check_columns(self._sink, change, self._target.key)
        if not any(change.sizes):
            return 0
        with ExitStack() as stack:
            producer = stack.enter_context(Producer(self._target, str(self._sink.place)))
            sent = producer.send(self._messages(change))
            failpoints.reach(failpoints.SENDING)
            producer.flush()
        return sent

    def _messages(self, change: "Change") -> Iterator[Out]:
        """Yield rows, then keys that went, always in the same order."""
        order = ", ".join(column.as_key for column in change.columns)
        number = 0
        for number, row in enumerate(_rows(change, f"FROM {change.came()} ORDER BY {order}"), 1):
            yield Out(as_json(row).encode(), self._key(row), self._headers(change, number))
        if self._target.key and change.sizes[1]:
            gone = f"FROM ({change.gone_keys(self._target.key)}) ORDER BY ALL"
            for later, row in enumerate(_rows(change, gone), number + 1):
                yield Out(None, self._key(row), self._headers(change, later))

    def _key(self, row: dict[str, Any]) -> bytes | None:
        if not self._target.key:
            return None
        return as_json({name: row[name] for name in self._target.key}).encode()

    def _headers(self, change: "Change", number: int) -> list[tuple[str, bytes]]:
        return [(COMMIT_HEADER, change.commit.encode()), (KEY_HEADER, f"{change.key}/{number}".encode())]


def _rows(change: "Change", sql: str) -> Iterator[dict[str, Any]]:
    for batch in change.reader(sql):
        yield from batch.to_pylist()
