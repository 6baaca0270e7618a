"""Tell OpenLineage of a stream: when it starts, what it has published now and then, and how it ends."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from runnel.errors import RunnelError
from runnel.plan.facts import Head
from runnel.run.openlineage.sender import LOG, sender_of

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from runnel.declare.settings import Settings
    from runnel.names import TableName
    from runnel.run.openlineage.sender import Sender
    from runnel.run.stream.stream_query import Course

_EVERY_SECONDS = 60.0  # a batch may come every second


@contextmanager
def told(settings: "Settings", course: "Course") -> Iterator[None]:
    """Tell of a stream while the block runs, if somebody wants to know."""
    sender = sender_of(settings.openlineage)
    if sender is None:
        yield
        return
    one = _Told(sender, settings.name, course)
    one.send("START")
    course.batches.after = one.batch
    try:
        yield
    except BaseException as error:
        one.send("FAIL" if isinstance(error, Exception) else "ABORT", error)
        raise
    one.send("COMPLETE")


class _Told:
    """One stream."""

    def __init__(self, sender: "Sender", project: str, course: "Course") -> None:
        self._sender = sender
        self._course = course
        self._namespace = sender.namespace(project, course.branch)
        self._id = str(uuid4())
        self._last = time.monotonic()
        self._then = course.batches.after

    def batch(self) -> None:
        """Take note of a batch that was published."""
        self._then()
        if time.monotonic() - self._last >= _EVERY_SECONDS:
            self._last = time.monotonic()
            self.send("RUNNING")

    def send(self, state: str, error: BaseException | None = None) -> None:
        """Tell how it is, if that can be said: no stream fails for it."""
        try:
            self._send(state, error)
        except Exception as trouble:  # the database is away, say
            LOG.warning("a stream is not told of", exc_info=trouble)

    def _send(self, state: str, error: BaseException | None) -> None:
        """Take down what is there now; the rest is made in the sender's thread."""
        batches, at = self._course.batches, datetime.now(UTC)
        versions = self._course.store.state(self._course.branch) if state != "START" else {}
        made = versions.get(self._course.task.table)
        head = Head(made.location, made.content) if made is not None else None
        inputs = {table: Head(one.location, one.content) for table, one in batches.inputs.items()}
        rows, commit = batches.rows, batches.commit
        self._sender.send(lambda: self._event(state, at, inputs, head, rows, commit, error), lambda text: None)

    def _event(
        self,
        state: str,
        at: datetime,
        inputs: "dict[TableName, Head]",
        head: Head | None,
        rows: int,
        commit: str | None,
        error: BaseException | None,
    ) -> "RunEvent":
        from runnel.run.openlineage.datasets import read, written
        from runnel.run.openlineage.events import About, Named, RunnelFacet, event, task_job

        course = self._course
        store, branch, task, space = course.store, course.branch, course.task, self._namespace
        about = About(Named(self._id, space, str(task.table)), job=task_job(task, None))
        facet = RunnelFacet(course.batches.context.run, branch, store.author, "stream", "stream", commit=commit)
        return event(
            about,
            state,
            at,
            facet,
            inputs=[read(store, space, branch, table, one) for table, one in inputs.items()],
            outputs=[written(store, space, branch, task.table, head, commit, rows)] if head is not None else [],
            error=error if isinstance(error, RunnelError) else None,
        )
