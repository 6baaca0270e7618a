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
    from runnel.names import TableName
    from runnel.run.openlineage.sender import LineageSender
    from runnel.run.stream.stream_query import StreamQuery

_EVERY_SECONDS = 60.0  # batches may come every second


@contextmanager
def report_stream(settings: "Settings", stream_query: "StreamQuery") -> Iterator[None]:
    """Report a stream while the block runs, if OpenLineage is configured."""
    sender = get_sender(settings.openlineage)
    if sender is None:
        yield
        return
    stream_lineage = _StreamLineage(sender, settings.name, stream_query)
    stream_lineage.send_state("START")
    stream_query.publisher.on_batch_done = stream_lineage.on_batch
    try:
        yield
    except BaseException as error:
        stream_lineage.send_state("FAIL" if isinstance(error, Exception) else "ABORT", error)
        raise
    stream_lineage.send_state("COMPLETE")


@dataclass(frozen=True)
class _StreamReport:
    """What is reported of a stream at one time: its state, the versions it reads, and what it has published."""

    state: str
    happened_at: datetime
    inputs: "dict[TableName, TableVersion]"
    head: TableVersion | None
    rows: int
    commit: str | None
    error: BaseException | None


class _StreamLineage:
    """Report one stream."""

    def __init__(self, sender: "LineageSender", project: str, stream_query: "StreamQuery") -> None:
        self._sender = sender
        self._stream_query = stream_query
        self._namespace = sender.namespace(project, stream_query.branch)
        self._id = str(uuid4())
        self._last_sent_at = time.monotonic()
        self._previous_callback = stream_query.publisher.on_batch_done

    def on_batch(self) -> None:
        """Report a published batch, at most once a minute."""
        self._previous_callback()
        if time.monotonic() - self._last_sent_at >= _EVERY_SECONDS:
            self._last_sent_at = time.monotonic()
            self.send_state("RUNNING")

    def send_state(self, state: str, error: BaseException | None = None) -> None:
        """Send the state of the stream; an error is only logged, so that no stream fails for it."""
        try:
            self._queue_event(state, error)
        except Exception as send_error:  # such as an unreachable database
            LOG.warning("a stream is not told of", exc_info=send_error)

    def _queue_event(self, state: str, error: BaseException | None) -> None:
        """Read the current state; the sender's thread builds the event."""
        publisher, happened_at = self._stream_query.publisher, datetime.now(UTC)
        versions = self._stream_query.store.state(self._stream_query.branch) if state != "START" else {}
        head = versions.get(self._stream_query.task.table)
        report = _StreamReport(
            state, happened_at, dict(publisher.inputs), head, publisher.rows, publisher.commit, error
        )
        self._sender.send(lambda: self._build_event(report), lambda text: None)

    def _build_event(self, report: _StreamReport) -> "RunEvent":
        from runnel.run.openlineage.datasets import LakeDatasets
        from runnel.run.openlineage.events import (
            EventHeader,
            LineageRun,
            RunnelFacet,
            build_event,
            build_task_job_facets,
        )

        stream_query = self._stream_query
        store, branch, task = stream_query.store, stream_query.branch, stream_query.task
        run, commit, datasets = (
            stream_query.publisher.context.run,
            report.commit,
            LakeDatasets(store, self._namespace, branch),
        )
        header = EventHeader(
            LineageRun(self._id, self._namespace, str(task.table)), job_facets=build_task_job_facets(task, None)
        )
        facet = RunnelFacet(run, branch, store.author, "stream", "stream", commit=commit)
        has_table = report.head is not None
        return build_event(
            header,
            report.state,
            report.happened_at,
            facet,
            inputs=[datasets.make_input(table, version) for table, version in report.inputs.items()],
            outputs=[datasets.make_output(task.table, report.head, commit, report.rows)] if has_table else [],
            error=report.error if isinstance(report.error, RunnelError) else None,
        )
