"""What a sink of any kind does: say what it has, and take a change."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from runnel.connect.ingest.detect.listing import is_address
from runnel.declare.model.endpoints import Files, Jdbc, Kafka, Webhook
from runnel.declare.model.flow import Sink

if TYPE_CHECKING:
    from runnel.connect.sinks.file_locations import Place
    from runnel.connect.sinks.table_change import Change


class Outlet(Protocol):
    """A sink while something is delivered to it."""

    def position(self, recorded: str | None) -> str | None:
        """Return the commit whose table it has; `recorded` is what Runnel knows, None is nothing.

        A sink that keeps this with the rows says more than Runnel knows, where a process was killed in between.
        """

    def take(self, change: "Change") -> int:
        """Take a change, all of it or nothing, and return how many rows that were.

        Raises Unreachable where the same may pass later.
        """


class Forgetful:
    """An outlet that holds nothing open between changes, and has only what is recorded of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held."""

    def position(self, recorded: str | None) -> str | None:
        """Return what is recorded."""
        return recorded


def outlet_of(sink: Sink, root: Path, epoch: int, storage: Mapping[str, str]) -> "AbstractContextManager[Outlet]":
    """Return the outlet of a sink; entering it connects. `epoch` is how often the sink was told to begin anew.

    `storage` is for files in an object store.
    """
    target = sink.target
    if isinstance(target, Jdbc):
        from runnel.connect.sinks.sql.sql_sink import SqlOutlet

        return SqlOutlet(sink, target, root, epoch)
    if isinstance(target, Files):
        from runnel.connect.sinks.file_sink import FileOutlet
        from runnel.connect.sinks.folder_sink import FolderOutlet

        kind = FolderOutlet if target.glob.endswith("/") else FileOutlet
        return kind(sink, target, _place(target, root, storage))
    if isinstance(target, Kafka):
        from runnel.connect.sinks.kafka_sink import KafkaOutlet

        return KafkaOutlet(sink, target)
    if isinstance(target, Webhook):
        from runnel.connect.sinks.webhook_sink import WebhookOutlet

        return WebhookOutlet(sink, target)
    from runnel.connect.sinks.function_sink import FunctionOutlet

    return FunctionOutlet(sink, target)


def _place(target: Files, root: Path, storage: Mapping[str, str]) -> "Place":
    from runnel.connect.sinks.file_locations import Bucket, Folder

    folder, _, name = target.glob.rpartition("/")
    if is_address(target.glob):
        return Bucket(folder, storage)
    # One name each time, so that what a crash left is found.
    return Folder((root / target.glob).parent, f".{name}.runnel") if name else Folder(root / folder, ".runnel")
