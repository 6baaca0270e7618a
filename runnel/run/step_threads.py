"""Track the threads of the steps of a run: interrupt them, time them out, and abandon those that don't stop."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.errors import Cancelled
from runnel.thread_interrupt import Interruption, abandon_thread, allow_interrupts

if TYPE_CHECKING:
    from runnel.errors import RunnelError
    from runnel.names import TableName

GRACE_SECONDS = 5.0  # for a step that is to stop; one that stays in C code longer is abandoned
INTERRUPT_SECONDS = 0.25  # between two interruptions of the same step


class StepThreads:
    """Track the threads of the steps of one run. Safe for several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._interruptions: dict[TableName, Interruption] = {}
        self._errors: dict[TableName, RunnelError] = {}
        self._grace_deadlines: dict[TableName, float] = {}
        self._abandoned: set[TableName] = set()

    @contextmanager
    def track_thread(self, table: "TableName") -> Iterator[None]:
        """Allow the step of this thread to be interrupted while the block runs."""
        with allow_interrupts() as interruption:
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
        """Note that a step has timed out: it now has a short grace period to end."""
        with self._guard:
            self._errors[table] = error
            self._grace_deadlines[table] = time.monotonic() + GRACE_SECONDS

    def find_error(self, table: "TableName") -> "RunnelError | None":
        """Return the timeout error of a step, if it has timed out."""
        with self._guard:
            return self._errors.get(table)

    def list_overdue(self) -> "list[TableName]":
        """Return the steps that have timed out and whose grace period is over."""
        now = time.monotonic()
        with self._guard:
            return [table for table, deadline in self._grace_deadlines.items() if deadline < now]

    def settle(self, table: "TableName") -> None:
        """Note that a step has ended by itself."""
        with self._guard:
            self._grace_deadlines.pop(table, None)

    def abandon(self, table: "TableName", thread: threading.Thread) -> None:
        """Stop waiting for the thread of a step; its later results are discarded."""
        with self._guard:
            self._grace_deadlines.pop(table, None)
            self._abandoned.add(table)
        abandon_thread(thread)

    def raise_if_abandoned(self, table: "TableName") -> None:
        """Raise Cancelled if a step was abandoned."""
        with self._guard:
            if table in self._abandoned:
                raise Cancelled
