"""Apply a source's `on_bad` policy to messages that are no rows; each is named by topic, partition and offset."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runnel.connect.kafka.offset_range import OffsetRange
from runnel.connect.load.quarantined_row import QuarantinedRow
from runnel.declare.model.flow import Source
from runnel.errors import RunnelError, plural

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from runnel.connect.ingest.bad_rows import QuarantineOutput

_MAX_SHOWN = 20


@dataclass(frozen=True)
class BadMessageFacts:
    """How many bad messages were read, the first of them described, and the data files of those in quarantine."""

    count: int
    first_descriptions: tuple[str, ...]
    quarantine_files: "tuple[DataFile, ...]" = ()


class BadMessages:
    """Counts bad messages, and writes them to the quarantine if it has an `output`.

    If the source declares `on_bad="stop"`, `refuse_if_stop` raises.
    """

    def __init__(self, source: Source, output: "QuarantineOutput | None" = None) -> None:
        self._source = source
        self._first_descriptions: list[str] = []
        self._quarantine_files: list[DataFile] = []
        self._count = 0
        self._quarantined_at = datetime.now(UTC)
        self._run = output.run if output is not None else ""
        self._writer = output.open_writer() if output is not None else None

    def add_message(self, span: OffsetRange, offset: int, value: bytes | None, reason: str) -> None:
        """Record a bad message, and quarantine it if the source says so."""
        self._count += 1
        description = f"{span.partition_name}, offset {offset}: {reason}"
        if len(self._first_descriptions) < _MAX_SHOWN:
            self._first_descriptions.append(description)
        elif self._source.on_bad == "stop":
            self.refuse_if_stop(is_complete=False)
        if self._writer is not None:
            raw = None if value is None else value.decode(errors="backslashreplace")
            name = span.name_part(span.start, span.end - 1)
            self._writer.add(QuarantinedRow(raw, description, name, self._run, self._quarantined_at))

    def refuse_if_stop(self, *, is_complete: bool = True) -> None:
        """Raise if there were bad messages and the source declares `on_bad="stop"`."""
        if self._source.on_bad != "stop" or not self._count:
            return
        count = plural(self._count, "message") if is_complete and self._count <= _MAX_SHOWN else "many messages"
        lines = [
            f"{count} of {self._source.table} can't be read; nothing was loaded",
            *(f"    {description}" for description in self._first_descriptions),
        ]
        fix = 'correct what writes them; take the good ones with on_bad="quarantine" or on_bad="drop"'
        raise RunnelError("SOURCE_BAD_ROWS", "\n".join(lines), at=str(self._source.place), fix=fix)

    def finish(self) -> BadMessageFacts:
        """Finish the data files of the quarantine, and return what was recorded."""
        if self._writer is not None:
            self._quarantine_files += self._writer.close()
            self._writer = None
        return BadMessageFacts(self._count, tuple(self._first_descriptions), tuple(self._quarantine_files))

    def add_facts(self, facts: BadMessageFacts) -> None:
        """Record the bad messages of a unit."""
        self._count += facts.count
        self._first_descriptions = [*self._first_descriptions, *facts.first_descriptions][:_MAX_SHOWN]
        self._quarantine_files += facts.quarantine_files
