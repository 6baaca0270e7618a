"""Messages as rows of Parquet files: as they are, or read as Avro."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from runnel.connect.feed.protocol import Part
from runnel.connect.kafka.avro_decoder import Decoder
from runnel.connect.kafka.bad_messages import Bad
from runnel.connect.kafka.message import VALUES, Message, headers_of, time_of
from runnel.connect.kafka.offset_range import Span
from runnel.declare.api.kafka import INCLUDED

_MOST_ROWS = 10_000
_MOST_BYTES = 16_000_000
_MOST_WAITING = 64_000_000  # in all files together
_OVERHEAD = 500  # of a message in memory, beside its bytes
_TIME = pa.timestamp("us", "UTC")
_KINDS: dict[str, pa.DataType] = {
    "key": pa.string(),
    "headers": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIME,
}


class Shape(Protocol):
    """How messages become rows of one kind."""

    schema: pa.Schema

    def table(self, span: Span, messages: Sequence[Message]) -> pa.Table:
        """Return the rows of messages; those that are none are noted and left out."""


class Raw:
    """Messages as they are: bytes."""

    schema = pa.schema(
        {"key": pa.binary(), "value": pa.binary()}
        | {name: _KINDS[name] for name in ("topic", "partition", "offset", "timestamp", "headers")}
    )

    def table(self, span: Span, messages: Sequence[Message]) -> pa.Table:
        """Return one row for each message."""
        columns: list[list[Any]] = [
            [message.key() for message in messages],
            [message.value() for message in messages],
            [span.topic] * len(messages),
            [span.partition] * len(messages),
            [message.offset() for message in messages],
            [time_of(message) for message in messages],
            [headers_of(message) for message in messages],
        ]
        return pa.table(columns, schema=self.schema)


class Avro:
    """Messages of Avro, with what else of them is asked for."""

    def __init__(self, decoder: Decoder, extra: Sequence[str], bad: Bad) -> None:
        self._decoder = decoder
        self._extra = tuple(extra)
        self._bad = bad
        self.schema = pa.schema([*decoder.schema, *(pa.field(INCLUDED[name].name, _KINDS[name]) for name in extra)])

    def table(self, span: Span, messages: Sequence[Message]) -> pa.Table:
        """Return the rows of messages that are Avro."""
        rows = []
        for message in messages:
            value = message.value()
            row, reason = (
                self._decoder.row(value) if value is not None else (None, "it has no value: it is a tombstone")
            )
            if row is None:
                self._bad.note(span, message.offset(), value, reason)
                continue
            for name in self._extra:
                row[INCLUDED[name].name] = VALUES[name](message)
            rows.append(row)
        return pa.Table.from_pylist(rows, self.schema)


class Rows:
    """The file of one span, of `count`. Messages wait until they are worth a write."""

    def __init__(self, span: Span, path: Path, shape: Shape, count: int = 1) -> None:
        self._span = span
        self._most_bytes = min(_MOST_BYTES, _MOST_WAITING // count)
        self._shape = shape
        self._path = path.with_suffix(".parquet")
        self._waiting: list[Message] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._first = self._last = -1
        self._count = 0

    def take(self, messages: Sequence[Message]) -> None:
        """Take messages, which come after those before."""
        for message in messages:
            self._waiting.append(message)
            self._bytes += len(message) + _OVERHEAD
            if len(self._waiting) >= _MOST_ROWS or self._bytes >= self._most_bytes:
                self._write()

    def close(self) -> list[Part]:
        """Return the file. Its name says where rows can't be counted up to an offset."""
        self._write()
        if self._writer is None:
            return []
        self._writer.close()
        name = self._span.named(self._first, self._last)
        has_gaps = self._last - self._first + 1 != self._count
        return [Part(self._path, f"{name}, with gaps" if has_gaps else name, "parquet")]

    def _write(self) -> None:
        if not self._waiting:
            return
        rows = self._shape.table(self._span, self._waiting)
        if rows.num_rows:
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, self._shape.schema, compression="zstd")
                self._first = self._waiting[0].offset()
            self._writer.write_table(rows)
            self._last = self._waiting[-1].offset()
            self._count += rows.num_rows
        self._waiting, self._bytes = [], 0


def nothing(path: Path, name: str, shape: Shape) -> Part:
    """Return a file without a row: it says which columns there are."""
    pq.write_table(shape.schema.empty_table(), path)
    return Part(path, name, "parquet")
