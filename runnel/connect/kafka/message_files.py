"""Choose the writer of message files by the format of the source."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from runnel.connect.files.fetched_file import FetchedFile
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


class DividedWriter:
    """Writes the messages of one span, those of each of its parts into files of their own."""

    def __init__(self, span: OffsetRange, create_writer: Callable[[OffsetRange], MessageWriter]) -> None:
        self._create_writer = create_writer
        self._remaining = span.divide()
        self._end = span.start
        self._writer: MessageWriter | None = None
        self._files: list[FetchedFile] = []

    def add_messages(self, messages: Sequence[KafkaMessage]) -> None:
        """Write messages, which follow those of the previous call."""
        while messages:
            if messages[0].offset() >= self._end:
                self._open_next(messages[0].offset())
            assert self._writer is not None
            if messages[-1].offset() < self._end:
                self._writer.add_messages(messages)
                return
            count = bisect_left(messages, self._end, key=lambda message: message.offset())
            self._writer.add_messages(messages[:count])
            messages = messages[count:]

    def close(self) -> list[FetchedFile]:
        """Return the files."""
        if self._writer is not None:
            self._files += self._writer.close()
            self._writer = None
        return self._files

    def _open_next(self, offset: int) -> None:
        """Go on to the part that has an offset."""
        self.close()
        part = self._remaining.pop(0)
        while part.end <= offset:
            part = self._remaining.pop(0)
        self._end, self._writer = part.end, self._create_writer(part)


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
        return WriterFactory(
            lambda span: DividedWriter(span, lambda part: JsonlMessageWriter(part, path(), origin.include, bad)), list
        )
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
        lambda span: DividedWriter(
            span, lambda part: ParquetMessageWriter(part, path(), row_format, max(span_count, 1))
        ),
        lambda: [write_empty_part(path(), name, row_format)],
    )
