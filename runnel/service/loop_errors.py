"""What is wrong with the loops of a process of the service: each has its own error, and holds up no other."""

import threading
from datetime import UTC, datetime
from typing import Any

from runnel.lake.catalog.database import stamp


class Problems:
    """The loops that fail now, by name, each with what it met and since when. For several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: dict[str, tuple[str, str]] = {}

    def note(self, part: str, what: str) -> bool:
        """Note that a loop fails, and tell whether that is news."""
        with self._guard:
            known = self._open.get(part)
            self._open[part] = (what, known[1] if known is not None else stamp(datetime.now(UTC)))
            return known is None or known[0] != what

    def clear(self, part: str) -> None:
        """Note that a loop does what it should."""
        with self._guard:
            self._open.pop(part, None)

    def json(self) -> list[dict[str, Any]]:
        """Return what `runnel status`, REST and /metrics show, by way of the row of the process."""
        with self._guard:
            return [{"part": part, "what": what, "since": since} for part, (what, since) in sorted(self._open.items())]
