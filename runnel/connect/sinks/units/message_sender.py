"""Send the messages of a change to Kafka in work units: all rows of a key are in one bucket, sent by one producer."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runnel.connect.kafka.producer import Producer
from runnel.connect.sinks import failpoints
from runnel.connect.sinks.kafka_messages import MessageBuilder
from runnel.connect.sinks.net_rows import ADDED_VIEW, REMOVED_VIEW
from runnel.connect.sinks.units.bucket_rows import open_bucket, run_by_key
from runnel.connect.sinks.units.change_rows import ChangeRows
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.secret import carry_if_secret

if TYPE_CHECKING:
    from runnel.connect.sinks.table_change import OutgoingChange
    from runnel.lake.work_runner import WorkRunner


@dataclass(frozen=True)
class MessageSender:
    """Sends the messages of a bucket; can be pickled. Kafka has all of them when it returns.

    `target` has the values of its secrets: executors lack the variables that hold them.
    """

    builder: MessageBuilder
    has_only_added_rows: bool
    at: str
    target: Kafka = field(repr=False)

    def __call__(self, _bucket: int, pieces: Iterator[bytes]) -> int:
        """Send a bucket, and return how many messages it has."""
        with open_bucket(self.builder.columns, pieces, has_only_added_rows=self.has_only_added_rows) as con:
            counts = f"SELECT (SELECT count(*) FROM {ADDED_VIEW}), (SELECT count(*) FROM {REMOVED_VIEW})"
            ((added, removed),) = con.execute(counts).fetchall()
            if not added + removed:
                return 0
            with Producer(self.target, self.at) as producer:
                sent_count = producer.send(self.builder.build_messages(con, has_removed_rows=removed > 0))
                failpoints.reach(failpoints.SENDING)
                producer.flush()
        return sent_count


def send_in_units(
    runner: "WorkRunner", change: "OutgoingChange", builder: MessageBuilder, target: Kafka, at: str
) -> int:
    """Send all messages of a change, and return how many."""
    assert change.work is not None
    files = change.changed_files
    sender = MessageSender(builder, files.has_only_added_rows, at, _carry_secrets(target, at))
    rows = ChangeRows.of(change)
    counts = run_by_key(runner, rows, files, target.key, merge=sender, report_units=change.work.report_units)
    return sum(counts)


def _carry_secrets(target: Kafka, at: str) -> Kafka:
    options = tuple((name, carry_if_secret(value, at)) for name, value in target.options)
    return replace(target, options=options)
