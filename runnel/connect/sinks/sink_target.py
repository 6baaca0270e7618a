"""Define what every kind of sink does: tell which commit it has, and receive a change."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from runnel.connect.ingest.detect.listing import is_object_url
from runnel.declare.model.endpoints import Files, Jdbc, Kafka, Webhook
from runnel.declare.model.flow import Sink
from runnel.errors import Mistake, did_you_mean

if TYPE_CHECKING:
    from runnel.connect.sinks.file_locations import FileLocation
    from runnel.connect.sinks.table_change import OutgoingChange
    from runnel.model.work_place import WorkPlace


@dataclass(frozen=True)
class DeliveredRows:
    """How many rows a sink accepted, and where they were read and sent; None if there was no choice."""

    count: int
    place: "WorkPlace | None" = None


class SinkTarget(Protocol):
    """A sink that is open for delivery."""

    def delivered_commit(self, recorded: str | None) -> str | None:
        """Return the commit whose rows the sink has, None if it has none; `recorded` is the commit in the catalog.

        A sink that stores the commit with the rows knows better than the catalog if a process was killed in between.
        """

    def deliver(self, change: "OutgoingChange") -> DeliveredRows:
        """Deliver a change completely or not at all.

        Raises Unreachable if a later retry may succeed.
        """


class StatelessSink:
    """A sink that keeps nothing open between changes, and whose commit is only recorded in the catalog."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: nothing is open."""

    def delivered_commit(self, recorded: str | None) -> str | None:
        """Return the recorded commit."""
        return recorded


def check_sink_columns(sink: Sink, change: "OutgoingChange", names: Sequence[str]) -> None:
    """Raise if the table lacks a column that the sink names, as its key or to partition its folders.

    A dropped table without columns is no mistake.
    """
    existing_names = [column.name for column in change.columns]
    for name in names if existing_names else ():
        if name not in existing_names:
            what = f"`{change.table}` has no column `{name}`" + did_you_mean(name, existing_names)
            raise Mistake(
                "SINK_COLUMN_UNKNOWN", what, at=str(sink.place), fix=f"choose among {', '.join(existing_names)}"
            )


def build_sink_target(
    sink: Sink, root: Path, epoch: int, storage: Mapping[str, str]
) -> "AbstractContextManager[SinkTarget]":
    """Return the target of a sink; entering it connects. `epoch` is how often the sink was reset.

    `storage` are the options of an object store, for file sinks.
    """
    target = sink.target
    if isinstance(target, Jdbc):
        from runnel.connect.sinks.sql.sql_sink import SqlSink

        return SqlSink(sink, target, root, epoch)
    if isinstance(target, Files):
        from runnel.connect.sinks.file_sink import FileSink
        from runnel.connect.sinks.folder_sink import FolderSink

        sink_class = FolderSink if target.glob.endswith("/") else FileSink
        return sink_class(sink, target, _build_location(target, root, storage))
    if isinstance(target, Kafka):
        from runnel.connect.sinks.kafka_sink import KafkaSink

        return KafkaSink(sink, target)
    if isinstance(target, Webhook):
        from runnel.connect.sinks.webhook_sink import WebhookSink

        return WebhookSink(sink, target)
    from runnel.connect.sinks.function_sink import FunctionSink

    return FunctionSink(sink, target)


def _build_location(target: Files, root: Path, storage: Mapping[str, str]) -> "FileLocation":
    from runnel.connect.sinks.file_locations import LocalFolder, ObjectStoreFolder

    folder, _, name = target.glob.rpartition("/")
    if is_object_url(target.glob):
        return ObjectStoreFolder(folder, storage)
    # The staging folder always has the same name, so that leftovers of a crash are found.
    return (
        LocalFolder((root / target.glob).parent, f".{name}.runnel") if name else LocalFolder(root / folder, ".runnel")
    )
