"""Report a stream to OpenLineage: its start, what it has published once a minute, and its end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from runnel.errors import RunnelError
from runnel.model.table_version import TableVersion
from runnel.run.openlineage.sender import LOG, get_sender

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from runnel.declare.settings import Settings
    from runnel.lake.store import Store
    from runnel.names import TableName
    from runnel.run.openlineage.sender import LineageSender
    from runnel.run.stream.batch_publisher import BatchPublisher
    from runnel.run.stream.stream_query import StreamSpec

_EVERY_SECONDS = 60.0  # batches may come every second


class StreamLineage:
    """Report one stream, if OpenLineage is configured.

    Pass `on_batch_done` to the stream as an observer of its batches, and let the stream run in the block of `report`.
    """

    def __init__(self, settings: "Settings", store: "Store", spec: "StreamSpec") -> None:
        self._sender = get_sender(settings.openlineage)
        self._project = settings.name
        self._store = store
        self._spec = spec
        self._id = str(uuid4())
        self._last_sent_at = time.monotonic()

    @contextmanager
    def report(self, publisher: "BatchPublisher") -> Iterator[None]:
        """Report the start of the stream, and its end when the block ends."""
        self._last_sent_at = time.monotonic()
        self._send_state("START", publisher)
        try:
            yield
        except BaseException as error:
            self._send_state("FAIL" if isinstance(error, Exception) else "ABORT", publisher, error)
            raise
        self._send_state("COMPLETE", publisher)

    def on_batch_done(self, publisher: "BatchPublisher") -> None:
        """Report a published batch, at most once a minute."""
        if time.monotonic() - self._last_sent_at >= _EVERY_SECONDS:
            self._last_sent_at = time.monotonic()
            self._send_state("RUNNING", publisher)

    def _send_state(self, state: str, publisher: "BatchPublisher", error: BaseException | None = None) -> None:
        """Send the state of the stream; an error is only logged, so that no stream fails for it."""
        if self._sender is None:
            return
        try:
            self._queue_event(self._sender, state, publisher, error)
        except Exception as send_error:  # such as an unreachable database
            LOG.warning("could not report the state of a stream", exc_info=send_error)

    def _queue_event(
        self, sender: "LineageSender", state: str, publisher: "BatchPublisher", error: BaseException | None
    ) -> None:
        """Read the current state; the sender's thread builds the event."""
        happened_at, namespace = datetime.now(UTC), sender.namespace(self._project, self._spec.branch)
        versions = self._store.state(self._spec.branch) if state != "START" else {}
        head = versions.get(self._spec.task.table)
        progress = _StreamProgress(dict(publisher.inputs), head, publisher.rows, publisher.commit)
        sender.send(lambda: self._build_event(namespace, state, happened_at, progress, error), lambda _: None)

    def _build_event(
        self,
        namespace: str,
        state: str,
        happened_at: datetime,
        progress: "_StreamProgress",
        error: BaseException | None,
    ) -> "RunEvent":
        from runnel.run.openlineage.datasets import LakeDatasets
        from runnel.run.openlineage.events import (
            EventHeader,
            LineageRun,
            RunnelFacet,
            build_event,
            build_task_job_facets,
        )

        store, branch, task = self._store, self._spec.branch, self._spec.task
        head, commit, datasets = progress.head, progress.commit, LakeDatasets(store, namespace, branch)
        header = EventHeader(
            LineageRun(self._id, namespace, str(task.table)), job_facets=build_task_job_facets(task, None)
        )
        facet = RunnelFacet(self._spec.run, branch, store.author, "stream", "stream", commit=commit)
        return build_event(
            header,
            state,
            happened_at,
            facet,
            inputs=[datasets.make_input(table, version) for table, version in progress.inputs.items()],
            outputs=[datasets.make_output(task.table, head, commit, progress.rows)] if head else [],
            error=error if isinstance(error, RunnelError) else None,
        )


@dataclass(frozen=True)
class _StreamProgress:
    """What a stream has read and published when an event is sent."""

    inputs: "dict[TableName, TableVersion]"
    head: TableVersion | None
    rows: int
    commit: str | None
