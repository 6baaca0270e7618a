"""The files that messages go to, by the format of their source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from runnel.connect.feed.protocol import Part
from runnel.connect.kafka.bad_messages import Bad
from runnel.connect.kafka.jsonl_writer import Lines
from runnel.connect.kafka.message import Message
from runnel.connect.kafka.offset_range import Span
from runnel.declare.model.endpoints import Kafka
from runnel.declare.model.flow import Source


class Writer(Protocol):
    """Writes the messages of one span."""

    def take(self, messages: Sequence[Message]) -> None:
        """Take messages, which come after those before."""

    def close(self) -> list[Part]:
        """Return the files."""


@dataclass(frozen=True)
class FileKind:
    """How files are made: for a span, and for a table that gets its columns though there is no message."""

    of: Callable[[Span], Writer]
    nothing: Callable[[], list[Part]]


def files_of(source: Source, origin: Kafka, root: Path, folder: Path, bad: Bad, spans: int = 1) -> FileKind:
    """Return how the messages of a source are written into a folder, those of so many spans at once."""
    numbers = count()

    def path() -> Path:
        return folder / str(next(numbers))  # a topic's name may be too long for one of a file

    if origin.format == "json":
        return FileKind(lambda span: Lines(span, path(), origin.include, bad), list)
    from runnel.connect.kafka.avro_decoder import Decoder
    from runnel.connect.kafka.parquet_writer import Avro, Raw, Rows, Shape, nothing

    shape: Shape = Raw()
    if origin.format == "avro":
        shape = Avro(Decoder(origin, root, str(source.place)), origin.include, bad)
    name = ", ".join(origin.topics) or str(origin.pattern)
    return FileKind(lambda span: Rows(span, path(), shape, max(spans, 1)), lambda: [nothing(path(), name, shape)])
