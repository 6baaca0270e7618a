"""Deliver a table to a Kafka topic: a message for each added row, and a tombstone for each removed key.

Headers carry the commit of a message, and a key that is the same if the message is sent again. Executors send the
messages of a key from one bucket of rows, so that their order is kept.
"""

from contextlib import ExitStack
from typing import TYPE_CHECKING

from runnel.connect.kafka.producer import Producer
from runnel.connect.sinks import failpoints
from runnel.connect.sinks.kafka_messages import MessageBuilder
from runnel.connect.sinks.sink_target import DeliveredRows, StatelessSink, check_sink_columns
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Sink
from runnel.model.work_place import EXECUTORS, PROCESS, WorkPlace

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import OutgoingChange
    from runnel.lake.work_runner import WorkRunner

_SPECULATION_REASON = "spark.speculation is on, by which two executors would send the same messages at once"


class KafkaSink(StatelessSink):
    """A Kafka topic."""

    def __init__(self, sink: Sink, target: Kafka) -> None:
        self._sink = sink
        self._target = target

    def deliver(self, change: "OutgoingChange") -> DeliveredRows:
        """Send all messages of a change; it is delivered once Kafka has all of them."""
        check_sink_columns(self._sink, change, self._target.key)
        runner = _choose_runner(change)
        if runner is None:
            return DeliveredRows(self._send_messages(change))
        if runner.place.name != EXECUTORS:
            return DeliveredRows(self._send_messages(change), runner.place)
        if runner.may_run_twice:
            return DeliveredRows(self._send_messages(change), WorkPlace(PROCESS, _SPECULATION_REASON))
        from runnel.connect.sinks.units.message_sender import send_in_units

        at = str(self._sink.place)
        return DeliveredRows(send_in_units(runner, change, self._build_builder(change), self._target, at), runner.place)

    def _send_messages(self, change: "OutgoingChange") -> int:
        if not any(change.added_and_removed):
            return 0
        with ExitStack() as stack:
            producer = stack.enter_context(Producer(self._target, str(self._sink.place)))
            change.added_view()  # creates the views that messages are built from
            has_removed_rows = change.added_and_removed[1] > 0
            messages = self._build_builder(change).build_messages(change.connection, has_removed_rows=has_removed_rows)
            sent_count = producer.send(messages)
            failpoints.reach(failpoints.SENDING)
            producer.flush()
        return sent_count

    def _build_builder(self, change: "OutgoingChange") -> MessageBuilder:
        return MessageBuilder(change.key, change.commit, change.columns, self._target.key)


def _choose_runner(change: "OutgoingChange") -> "WorkRunner | None":
    """Return where the messages are sent from; None if there is no choice."""
    if change.work is None:
        return None
    from runnel.lake.scan.scan_units import count_bytes, list_outside_paths

    files = (*change.changed_files.old, *change.changed_files.new)
    return change.work.choose_runner(count_bytes(files), list_outside_paths(change.store.warehouse, files))
