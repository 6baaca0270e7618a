"""Keep the current errors of the loops of a service process: each loop fails on its own and delays no other."""

import threading
from datetime import UTC, datetime
from typing import Any

from runnel.lake.catalog.database import format_time


class LoopProblems:
    """The loops that currently fail, by name, each with its error and since when. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open_problems: dict[str, tuple[str, str]] = {}

    def note(self, loop_name: str, what: str) -> bool:
        """Note that a loop fails, and return whether the error is new."""
        with self._lock:
            previous = self._open_problems.get(loop_name)
            self._open_problems[loop_name] = (
                what,
                previous[1] if previous is not None else format_time(datetime.now(UTC)),
            )
            return previous is None or previous[0] != what

    def clear(self, loop_name: str) -> None:
        """Note that a loop works again."""
        with self._lock:
            self._open_problems.pop(loop_name, None)

    def json(self) -> list[dict[str, Any]]:
        """Return what `runnel status`, REST and /metrics show; it is stored in the catalog row of the process."""
        with self._lock:
            return [
                {"part": loop_name, "what": what, "since": since}
                for loop_name, (what, since) in sorted(self._open_problems.items())
            ]
