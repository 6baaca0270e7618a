"""Choose the writer of message files by the format of the source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from runnel.connect.feed.protocol import FetchedFile
from runnel.connect.kafka.bad_messages import BadMessages
from runnel.connect.kafka.jsonl_writer import JsonlMessageWriter
from runnel.connect.kafka.message import KafkaMessage
from runnel.connect.kafka.offset_range import OffsetRange
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Source


class MessageWriter(Protocol):
    """Writes the messages of one span."""

    def add_messages(self, messages: Sequence[KafkaMessage]) -> None:
        """Write messages, which follow those of the previous call."""

    def close(self) -> list[FetchedFile]:
        """Return the files."""


@dataclass(frozen=True)
class WriterFactory:
    """Creates writers for spans, and a file without rows that gives the table its columns if there is no message."""

    create_writer: Callable[[OffsetRange], MessageWriter]
    write_empty_part: Callable[[], list[FetchedFile]]


def build_writer_factory(
    source: Source, origin: Kafka, root: Path, folder: Path, bad: BadMessages, *, span_count: int = 1
) -> WriterFactory:
    """Return a factory of writers into a folder, for `span_count` spans at the same time."""
    numbers = count()

    def path() -> Path:
        return folder / str(next(numbers))  # a topic's name may be too long for a file name

    if origin.format == "json":
        return WriterFactory(lambda span: JsonlMessageWriter(span, path(), origin.include, bad), list)
    from runnel.connect.kafka.avro_decoder import AvroDecoder
    from runnel.connect.kafka.parquet_writer import (
        AvroFormat,
        ParquetMessageWriter,
        RawFormat,
        RowFormat,
        write_empty_part,
    )

    row_format: RowFormat = RawFormat()
    if origin.format == "avro":
        row_format = AvroFormat(AvroDecoder(origin, root, str(source.place)), origin.include, bad)
    name = ", ".join(origin.topics) or str(origin.pattern)
    return WriterFactory(
        lambda span: ParquetMessageWriter(span, path(), row_format, max(span_count, 1)),
        lambda: [write_empty_part(path(), name, row_format)],
    )
