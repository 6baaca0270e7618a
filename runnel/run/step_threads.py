"""The threads of the steps of a run: how each is interrupted, and which nobody waits for any more."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.errors import Cancelled
from runnel.thread_interrupt import Interruption, abandon, interruptible

if TYPE_CHECKING:
    from runnel.errors import RunnelError
    from runnel.names import TableName

GRACE_SECONDS = 5.0  # for a step that was told to stop; what waits in C code longer than that is abandoned
INTERRUPT_SECONDS = 0.25  # between two interruptions of the same step


class StepThreads:
    """What one run knows of the threads of its steps. For several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._interruptions: dict[TableName, Interruption] = {}
        self._errors: dict[TableName, RunnelError] = {}
        self._until: dict[TableName, float] = {}
        self._abandoned: set[TableName] = set()

    @contextmanager
    def entered(self, table: "TableName") -> Iterator[None]:
        """Let the step that this thread does be interrupted while the block runs."""
        with interruptible() as interruption:
            with self._guard:
                self._interruptions[table] = interruption
            yield

    def interrupt(self, table: "TableName") -> None:
        """Raise `Interrupted` in the thread of a step, if it has begun."""
        with self._guard:
            interruption = self._interruptions.get(table)
        if interruption is not None:
            interruption.interrupt()

    def time_out(self, table: "TableName", error: "RunnelError") -> None:
        """Note that the time of a step is up: from now on it has a short grace to end."""
        with self._guard:
            self._errors[table] = error
            self._until[table] = time.monotonic() + GRACE_SECONDS

    def error_of(self, table: "TableName") -> "RunnelError | None":
        """Return what a step fails with whose time is up."""
        with self._guard:
            return self._errors.get(table)

    def overdue(self) -> "list[TableName]":
        """Return the steps whose time is up, and whose grace is over as well."""
        now = time.monotonic()
        with self._guard:
            return [table for table, until in self._until.items() if until < now]

    def settle(self, table: "TableName") -> None:
        """Note that a step has ended by itself."""
        with self._guard:
            self._until.pop(table, None)

    def abandon(self, table: "TableName", thread: threading.Thread) -> None:
        """Wait no longer for the thread of a step; whatever it still makes does not count."""
        with self._guard:
            self._until.pop(table, None)
            self._abandoned.add(table)
        abandon(thread)

    def check(self, table: "TableName") -> None:
        """Raise where nobody waits for a step any more."""
        with self._guard:
            if table in self._abandoned:
                raise Cancelled
