"""Read ranges of offsets into files: all of them in this process, or some in each work unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.connect.files.fetched_file import FetchedFile, SharedFile
from runnel.connect.ingest.shared_scratch import SharedScratch
from runnel.connect.kafka.bad_messages import BadMessageFacts, BadMessages
from runnel.connect.kafka.client import KafkaClient
from runnel.connect.kafka.consumer import consume_spans
from runnel.connect.kafka.expired_messages import ExpiredMessages
from runnel.connect.kafka.message_files import WriterFactory
from runnel.connect.kafka.offset_range import RANGE_OFFSETS, OffsetRange
from runnel.connect.kafka.offsets import PartitionId
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Source
from runnel.declare.model.secret import carry_if_secret
from runnel.model.progress import Progress, ignore_progress

if TYPE_CHECKING:
    from runnel.connect.ingest.bad_rows import QuarantineOutput
    from runnel.connect.kafka.message import KafkaMessage


@dataclass(frozen=True)
class MessageFiles:
    """The files of some messages, and when the oldest was written, in milliseconds since 1970."""

    parts: tuple[FetchedFile, ...]
    oldest_ms: int | None


def read_messages(
    client: KafkaClient,
    ranges: Sequence[OffsetRange],
    writer_factory: WriterFactory,
    expired: ExpiredMessages,
    report_progress: Progress,
) -> MessageFiles:
    """Read the messages of ranges, of one partition each, into files."""
    timestamps = list[int]()
    writers = {span: writer_factory.create_writer(span) for span in ranges}

    def take(span: OffsetRange, messages: "list[KafkaMessage]") -> None:
        timestamps.append(messages[0].timestamp()[1])
        writers[span].add_messages(messages)

    if ranges:
        consume_spans(client, ranges, take, expired.find_next_offset, report_progress)
    parts = tuple(part for writer in writers.values() for part in writer.close())
    return MessageFiles(parts, min(timestamps, default=None))


@dataclass(frozen=True)
class MessageUnit:
    """Ranges of offsets, of one partition each."""

    ranges: tuple[OffsetRange, ...]


def divide_ranges(ranges: Sequence[OffsetRange], parallel_units: int) -> list[MessageUnit]:
    """Return units of about equal numbers of messages, a few for each of the parallel tasks.

    >>> units = divide_ranges([OffsetRange("a", 0, 0, 10), OffsetRange("a", 1, 0, 30), OffsetRange("a", 2, 5, 9)], 1)
    >>> [[span.partition_name for span in unit.ranges] for unit in units]
    [['a[0]', 'a[1]'], ['a[2]']]
    """
    pieces = [piece for span in ranges for piece in span.divide()]
    limit = min(RANGE_OFFSETS, sum(piece.count for piece in pieces) // (2 * max(1, parallel_units)) + 1)
    units: list[list[OffsetRange]] = []
    size = limit
    for piece in pieces:  # two pieces of a partition are never in one unit: all but the last fill one
        if size >= limit:
            units.append([])
            size = 0
        units[-1].append(piece)
        size += piece.count
    return [MessageUnit(tuple(unit)) for unit in units]


@dataclass(frozen=True)
class UnitMessages:
    """What a unit read. `lost` are the messages of partitions that expired meanwhile."""

    parts: tuple[SharedFile, ...]
    oldest_ms: int | None
    bad: BadMessageFacts
    lost: Mapping[PartitionId, int]


@dataclass(frozen=True)
class MessageFetcher:
    """Reads units into scratch files, and bad messages into the quarantine; can be pickled.

    `ids` are those of the announced topics.
    """

    source: Source
    ids: Mapping[str, str]
    scratch: SharedScratch
    quarantine: "QuarantineOutput | None" = None

    def __call__(self, unit: MessageUnit) -> UnitMessages:
        """Read a unit."""
        from runnel.connect.kafka.message_files import build_writer_factory

        origin = self.source.origin
        assert isinstance(origin, Kafka)
        client = KafkaClient(origin, str(self.source.place))
        bad_messages = BadMessages(self.source, self.quarantine)
        expired = ExpiredMessages(self.source, origin, client, self.ids, {})
        with self.scratch.open_folder() as folder:
            writer_factory = build_writer_factory(
                self.source, origin, Path(), folder.path, bad_messages, span_count=len(unit.ranges)
            )
            files = read_messages(client, unit.ranges, writer_factory, expired, ignore_progress)
            parts = folder.share_files(files.parts)
        return UnitMessages(parts, files.oldest_ms, bad_messages.finish(), expired.lost_since)


def prepare_source(source: Source, origin: Kafka, root: Path) -> Source:
    """Return a source that another machine can read: with the values of secrets, and the Avro schema itself.

    It skips expired messages: the caller, who knows those of all units, decides about them.
    """
    from runnel.connect.kafka.avro_decoder import read_schema

    at = str(source.place)
    options = tuple((name, carry_if_secret(value, at)) for name, value in origin.options)
    avro = read_schema(origin.avro, root, at) if origin.avro is not None else None
    return replace(source, origin=replace(origin, options=options, avro=avro, expired="skip"))
