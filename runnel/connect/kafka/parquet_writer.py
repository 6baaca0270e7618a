"""Write messages as rows of Parquet files: as raw bytes, or decoded from Avro."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.connect.files.fetched_file import FetchedFile
from runnel.connect.kafka.avro_decoder import AvroDecoder
from runnel.connect.kafka.bad_messages import BadMessages
from runnel.connect.kafka.message import METADATA_VALUES, KafkaMessage, encode_headers, read_timestamp
from runnel.connect.kafka.offset_range import OffsetRange
from runnel.declare.api.kafka import INCLUDE_COLUMNS

_MAX_ROWS = 10_000
_MAX_BYTES = 16_000_000
_MAX_BUFFERED_BYTES = 64_000_000  # in all files together
_MESSAGE_OVERHEAD_BYTES = 500  # of a message in memory, besides its content
_TIME = pa.timestamp("us", "UTC")
_METADATA_TYPES: dict[str, pa.DataType] = {
    "key": pa.string(),
    "headers": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIME,
}


class RowFormat(Protocol):
    """Turns messages into rows."""

    schema: pa.Schema

    def build_table(self, span: OffsetRange, messages: Sequence[KafkaMessage]) -> pa.Table:
        """Return the rows of messages; bad messages are recorded and left out."""


class RawFormat:
    """Messages as raw bytes, with their metadata."""

    schema = pa.schema(
        {"key": pa.binary(), "value": pa.binary()}
        | {name: _METADATA_TYPES[name] for name in ("topic", "partition", "offset", "timestamp", "headers")}
    )

    def build_table(self, span: OffsetRange, messages: Sequence[KafkaMessage]) -> pa.Table:
        """Return one row for each message."""
        columns: list[list[Any]] = [
            [message.key() for message in messages],
            [message.value() for message in messages],
            [span.topic] * len(messages),
            [span.partition] * len(messages),
            [message.offset() for message in messages],
            [read_timestamp(message) for message in messages],
            [encode_headers(message) for message in messages],
        ]
        return pa.table(columns, schema=self.schema)


class AvroFormat:
    """Avro messages, with the metadata that the source includes."""

    def __init__(self, decoder: AvroDecoder, extra: Sequence[str], bad: BadMessages) -> None:
        self._decoder = decoder
        self._extra = tuple(extra)
        self._bad_messages = bad
        self.schema = pa.schema(
            [*decoder.schema, *(pa.field(INCLUDE_COLUMNS[name].name, _METADATA_TYPES[name]) for name in extra)]
        )

    def build_table(self, span: OffsetRange, messages: Sequence[KafkaMessage]) -> pa.Table:
        """Return the decoded rows; messages that are not Avro are recorded as bad."""
        rows = []
        for message in messages:
            value = message.value()
            row, reason = (
                self._decoder.decode(value) if value is not None else (None, "it has no value: it is a tombstone")
            )
            if row is None:
                self._bad_messages.add_message(span, message.offset(), value, reason)
                continue
            for name in self._extra:
                row[INCLUDE_COLUMNS[name].name] = METADATA_VALUES[name](message)
            rows.append(row)
        return pa.Table.from_pylist(rows, self.schema)


class ParquetMessageWriter:
    """Writes the file of one of `span_count` spans. Messages are buffered until there are enough for a write."""

    def __init__(self, span: OffsetRange, path: Path, row_format: RowFormat, span_count: int = 1) -> None:
        self._span = span
        self._max_bytes = min(_MAX_BYTES, _MAX_BUFFERED_BYTES // span_count)
        self._row_format = row_format
        self._path = path.with_suffix(".parquet")
        self._buffer: list[KafkaMessage] = []
        self._buffered_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._first_offset = self._last_offset = -1
        self._row_count = 0

    def add_messages(self, messages: Sequence[KafkaMessage]) -> None:
        """Buffer messages, which follow those of the previous call."""
        for message in messages:
            self._buffer.append(message)
            self._buffered_bytes += len(message) + _MESSAGE_OVERHEAD_BYTES
            if len(self._buffer) >= _MAX_ROWS or self._buffered_bytes >= self._max_bytes:
                self._write_buffer()

    def close(self) -> list[FetchedFile]:
        """Return the file. Its name says if it has gaps, so that a row's number does not give its offset."""
        self._write_buffer()
        if self._writer is None:
            return []
        self._writer.close()
        name = self._span.name_part(self._first_offset, self._last_offset)
        has_gaps = self._last_offset - self._first_offset + 1 != self._row_count
        return [FetchedFile(self._path, f"{name}, with gaps" if has_gaps else name, "parquet")]

    def _write_buffer(self) -> None:
        if not self._buffer:
            return
        rows = self._row_format.build_table(self._span, self._buffer)
        if rows.num_rows:
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, self._row_format.schema, compression="zstd")
                self._first_offset = self._buffer[0].offset()
            self._writer.write_table(rows)
            self._last_offset = self._buffer[-1].offset()
            self._row_count += rows.num_rows
        self._buffer, self._buffered_bytes = [], 0


def write_empty_part(path: Path, name: str, row_format: RowFormat) -> FetchedFile:
    """Write a file without rows, which gives the table its columns."""
    pq.write_table(row_format.schema.empty_table(), path)
    return FetchedFile(path, name, "parquet")
