"""Messages that are no rows, by the policy of their source: each is known by its topic, partition and offset."""

from datetime import UTC, datetime

from runnel.connect.kafka.offset_range import Span
from runnel.connect.load.quarantine import Aside
from runnel.declare.model.flow import Source
from runnel.errors import RunnelError

_MOST_SHOWN = 20


class Bad:
    """What is wrong with messages that were read. Where the source stops at bad rows, `refuse` raises."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._first: list[str] = []
        self._asides: list[Aside] = []
        self._count = 0
        self._at = datetime.now(UTC)

    def note(self, span: Span, offset: int, value: bytes | None, reason: str) -> None:
        """Set a message aside."""
        self._count += 1
        place = f"{span.place}, offset {offset}: {reason}"
        if len(self._first) < _MOST_SHOWN:
            self._first.append(place)
        elif self._source.on_bad == "stop":
            self.refuse(is_all=False)
        if self._source.on_bad == "quarantine":
            raw = None if value is None else value.decode(errors="backslashreplace")
            self._asides.append(Aside(raw, place, span.named(span.start, span.end - 1), "", self._at))

    def refuse(self, *, is_all: bool = True) -> None:
        """Raise where the source stops and something was bad."""
        if self._source.on_bad != "stop" or not self._count:
            return
        count = f"{self._count:,} message{'s' if self._count != 1 else ''}" if is_all else "many messages"
        lines = [
            f"{count} of {self._source.table} can't be read; nothing was loaded",
            *(f"    {one}" for one in self._first),
        ]
        fix = 'correct what writes them; take the good ones with on_bad="quarantine" or on_bad="drop"'
        raise RunnelError("SOURCE_BAD_ROWS", "\n".join(lines), at=str(self._source.place), fix=fix)

    @property
    def rows(self) -> tuple[Aside, ...]:
        """Return them, as many as there were; where they are dropped, each is the same."""
        if self._asides:
            return tuple(self._asides)
        return (Aside(None, "", None, "", self._at),) * self._count
